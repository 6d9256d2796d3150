"""The calls that a face can make, one class each: its name, its arguments, what answers it, the type of the answer.

`connect` carries a call to the running host, or answers it in this process; both run the same `answer`, so they cannot
disagree. What answers is imported when it is needed: a client that asks a host imports none of it.

A new call is a class here and its place in `CALLS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import attrs

from buzz_host.services import install_calls, program_calls
from buzz_host.services.call import Call, HomeCall, HostCall, TellingCall
from buzz_host.services.preview_call import PreviewTurn, WarnOfTurn

if TYPE_CHECKING:
    from buzz_author.errors import PluginFault
    from buzz_host.ledger.search import Find
    from buzz_host.ledger.verify import Break
    from buzz_host.ledger.views import PluginRow, TurnRow, TurnView
    from buzz_host.plugins.linking import Linked
    from buzz_host.services.audit import Verification
    from buzz_host.services.harnesses import HarnessView
    from buzz_host.services.host import Host
    from buzz_host.services.plugins import PluginTroubles, PluginView, Switched
    from buzz_host.settings import Home

__all__ = [
    "CALLS",
    "AuditPlugin",
    "AuditTurn",
    "AuditTurns",
    "Call",
    "HomeCall",
    "HostCall",
    "LinkPlugin",
    "ListHarnesses",
    "ListPlugins",
    "PluginErrors",
    "PreviewTurn",
    "SearchAudit",
    "ShowPlugin",
    "SwitchPlugin",
    "TellingCall",
    "UnsearchedEntries",
    "VerifyLedger",
    "WarnOfTurn",
]


@attrs.frozen(kw_only=True)
class ListPlugins(HostCall["tuple[PluginView, ...]"]):
    """Every plugin as it stands towards `agent` (None: the default agent)."""

    name = "plugins.list"
    agent: str | None = None

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.plugins import PluginView

        return tuple[PluginView, ...]

    async def answer(self, host: Host) -> tuple[PluginView, ...]:
        from buzz_host.services.plugins import plugin_views

        await host.plugins.refresh()
        return plugin_views(host, self.agent)


@attrs.frozen(kw_only=True)
class ShowPlugin(HostCall["PluginView"]):
    """One plugin as it stands towards `agent`."""

    name = "plugins.show"
    plugin: str
    agent: str | None = None

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.plugins import PluginView

        return PluginView

    async def answer(self, host: Host) -> PluginView:
        from buzz_host.services.plugins import plugin_view

        await host.plugins.refresh()
        return plugin_view(host, self.plugin, self.agent)


@attrs.frozen(kw_only=True)
class PluginErrors(HostCall["PluginTroubles"]):
    """What is wrong with plugins now."""

    name = "plugins.errors"

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.plugins import PluginTroubles

        return PluginTroubles

    async def answer(self, host: Host) -> PluginTroubles:
        from buzz_host.services.plugins import troubles

        await host.plugins.refresh()
        return troubles(host)


@attrs.frozen(kw_only=True)
class SwitchPlugin(HomeCall["Switched"]):
    """Switch a plugin on or off, for everybody or for `agent` alone."""

    name = "plugins.switch"
    plugin: str
    on: bool
    agent: str | None = None

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.plugins import Switched

        return Switched

    def answer(self, home: Home) -> Switched:
        from buzz_host.services.plugins import switch

        return switch(home, self.plugin, on=self.on, agent=self.agent)


@attrs.frozen(kw_only=True)
class LinkPlugin(HomeCall["Linked"]):
    """Link the plugin at `path`, which is absolute, into the home."""

    name = "plugins.link"
    path: str

    @staticmethod
    def answer_type() -> object:
        from buzz_host.plugins.linking import Linked

        return Linked

    def answer(self, home: Home) -> Linked:
        from buzz_host.plugins.linking import link

        return link(home, Path(self.path))


@attrs.frozen
class Harnesses:
    """The harnesses of a home, and the faults of plugins, of which one may be why a harness is missing."""

    views: tuple[HarnessView, ...]
    faults: tuple[PluginFault, ...]


@attrs.frozen(kw_only=True)
class ListHarnesses(HostCall[Harnesses]):
    """Which programs are here, and what they carry."""

    name = "harnesses.list"

    @staticmethod
    def answer_type() -> object:
        from buzz_author.errors import PluginFault
        from buzz_host.services.harnesses import HarnessView

        return attrs.resolve_types(Harnesses, localns={"HarnessView": HarnessView, "PluginFault": PluginFault})

    async def answer(self, host: Host) -> Harnesses:
        from buzz_host.services.harnesses import harness_faults, harness_views

        await host.plugins.refresh()
        return Harnesses(await harness_views(host), harness_faults(host))


@attrs.frozen(kw_only=True)
class AuditTurns(HomeCall["tuple[TurnRow, ...]"]):
    """The newest turns, newest first."""

    name = "audit.turns"
    limit: int
    agent: str | None = None
    session: str | None = None

    @staticmethod
    def answer_type() -> object:
        from buzz_host.ledger.views import TurnRow

        return tuple[TurnRow, ...]

    def answer(self, home: Home) -> tuple[TurnRow, ...]:
        from buzz_host.services.audit import Audit

        return Audit(home).turns(agent=self.agent, session=self.session, limit=self.limit)


@attrs.frozen(kw_only=True)
class SearchAudit(HomeCall["tuple[Find, ...]"]):
    """The texts of the ledger that hold all of `words`, newest first."""

    name = "audit.search"
    words: str
    limit: int

    @staticmethod
    def answer_type() -> object:
        from buzz_host.ledger.search import Find

        return tuple[Find, ...]

    def answer(self, home: Home) -> tuple[Find, ...]:
        from buzz_host.services.audit import Audit

        return Audit(home).search(self.words, limit=self.limit)


@attrs.frozen(kw_only=True)
class UnsearchedEntries(HomeCall[int]):
    """How many entries of the ledger no search can find, because they cannot be indexed."""

    name = "audit.unsearched"

    @staticmethod
    def answer_type() -> object:
        return int

    def answer(self, home: Home) -> int:
        from buzz_host.services.audit import Audit

        return Audit(home).unsearched()


@attrs.frozen(kw_only=True)
class AuditTurn(HomeCall["TurnView"]):
    """One turn whole, by its id or the beginning of it."""

    name = "audit.turn"
    turn: str

    @staticmethod
    def answer_type() -> object:
        from buzz_host.ledger.views import TurnView

        return TurnView

    def answer(self, home: Home) -> TurnView:
        from buzz_host.services.audit import Audit

        return Audit(home).turn(self.turn)


@attrs.frozen(kw_only=True)
class AuditPlugin(HomeCall["tuple[PluginRow, ...]"]):
    """What one plugin told, turn by turn, newest first."""

    name = "audit.plugin"
    plugin: str
    limit: int
    agent: str | None = None

    @staticmethod
    def answer_type() -> object:
        from buzz_host.ledger.views import PluginRow

        return tuple[PluginRow, ...]

    def answer(self, home: Home) -> tuple[PluginRow, ...]:
        from buzz_host.services.audit import Audit

        return Audit(home).plugin(self.plugin, agent=self.agent, limit=self.limit)


@attrs.frozen(kw_only=True)
class VerifyLedger(TellingCall["Verification", "Break"]):
    """Go through the whole ledger, telling each break as it is met."""

    name = "audit.verify"
    head: str | None = None

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.audit import Verification

        return Verification

    @staticmethod
    def told_type() -> object:
        from buzz_host.ledger.verify import Break

        return Break

    def answer(self, home: Home, tell: Callable[[Break], None]) -> Verification:
        from buzz_host.services.audit import Audit

        return Audit(home).verify(self.head, tell)


_ALL: Final[tuple[type[Call[Any]], ...]] = (
    PreviewTurn,
    WarnOfTurn,
    ListPlugins,
    ShowPlugin,
    PluginErrors,
    SwitchPlugin,
    LinkPlugin,
    *install_calls.ALL,
    ListHarnesses,
    *program_calls.ALL,
    AuditTurns,
    AuditTurn,
    AuditPlugin,
    SearchAudit,
    UnsearchedEntries,
    VerifyLedger,
)
CALLS: Final[Mapping[str, type[Call[Any]]]] = MappingProxyType({each.name: each for each in _ALL})
