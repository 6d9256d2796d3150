"""What a face can ask about plugins, and the switches: the same answers on every surface (PLG-06).

How a plugin stands is taken from what composes the turns, so a list shows what the next turn does. Switching writes
`buzz.toml`; a running host sees it at its next turn.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

import attrs

from buzz_author.errors import BuzzError, PluginFault
from buzz_author.json_values import JsonObject
from buzz_author.names import folded
from buzz_host.agents.catalogue import AgentCatalogue
from buzz_host.plugins.contributions import HARNESSES, INSTRUCTIONS
from buzz_host.plugins.discovery import VERIFY_PHASE, discover
from buzz_host.plugins.enablement import Enablement, Reason
from buzz_host.plugins.sources import Discovery, Origin, PluginSource, SettingRule
from buzz_host.turns.snapshot import Standing

if TYPE_CHECKING:
    from buzz_host.services.host import Host
    from buzz_host.settings import Home


class UnknownPlugin(BuzzError, LookupError):
    """No plugin is called so."""


@attrs.frozen
class ContributedText:
    """One standing instruction of a plugin: its id and the bytes that it adds to a turn; whether a `when` guards it."""

    id: str
    bytes: int
    guarded: bool


@attrs.frozen
class PluginView:
    """One plugin as it stands towards one agent.

    `standing` is what the next turn makes of it: `active`, `off`, `starting` or `failed`; `reason` is the rule that
    switched it on or off. `otherwise` are the agents for whom it is switched the other way. `source` is None where it
    was found and is no usable plugin: `faults` say why.
    """

    id: str
    agent: str
    standing: Standing
    reason: Reason | None
    detail: str
    source: PluginSource | None
    otherwise: tuple[str, ...] = ()
    faults: tuple[PluginFault, ...] = ()
    warnings: tuple[str, ...] = ()
    settings: JsonObject = attrs.field(factory=dict)
    instructions: tuple[ContributedText, ...] = ()
    harnesses: tuple[str, ...] = ()

    @property
    def enabled(self) -> bool:
        """Whether it is switched on for the agent, however it fares then."""
        return self.source is not None and self.standing != "off"

    @property
    def origin(self) -> Origin | None:
        """Where it comes from."""
        return self.source.origin if self.source is not None else None

    @property
    def verified(self) -> bool | None:
        """Whether each byte of an installed plugin is what was installed. None for a plugin that is not installed:
        there is nothing to hold it against."""
        if any(each.phase == VERIFY_PHASE for each in self.faults):
            return False
        return True if self.source is not None and self.source.installation is not None else None

    @property
    def setting_rules(self) -> dict[str, SettingRule]:
        """What the plugin says of its settings."""
        return dict(self.source.setting_rules) if self.source is not None else {}


@attrs.frozen
class Switched:
    """What holds after a plugin was switched: for `agent`, or where nothing is said about an agent (None)."""

    plugin: str
    agent: str | None
    enabled: bool
    reason: Reason


@attrs.frozen
class PluginTroubles:
    """What is wrong now: the faults of plugins, and as lines the agents' files that cannot be used, and warnings."""

    faults: tuple[PluginFault, ...]
    warnings: tuple[str, ...]
    agents: tuple[str, ...] = ()


def plugin_views(host: Host, agent: str | None = None) -> tuple[PluginView, ...]:
    """Every plugin that was found, by id, as it stands towards `agent` (None: the default agent).

    Raises `UnknownAgent`.
    """
    live = host.plugins
    name = host.agents.get(agent or live.settings.default_agent).name
    faults = live.faults()
    views = []
    for standing, source in zip(live.standings(name), live.found.sources, strict=True):
        decision = live.enablement.decision(source, name)
        views.append(
            PluginView(
                id=source.id,
                agent=name,
                standing=standing.standing,
                reason=decision.reason,
                detail=standing.detail,
                source=source,
                otherwise=tuple(
                    each
                    for each in sorted(live.settings.agents)
                    if each != name and live.enablement.enabled_for(source, each) != decision.enabled
                ),
                faults=tuple(each for each in faults if each.plugin == source.id),
                warnings=live.enablement.setting_warnings(source),
                settings=live.enablement.settings_of(source),
                instructions=tuple(
                    ContributedText(each.id, each.value.section.size, each.value.when is not None)
                    for each in live.contributions.snapshot(INSTRUCTIONS)
                    if each.plugin == source.id
                ),
                harnesses=tuple(
                    each.value.id for each in live.contributions.snapshot(HARNESSES) if each.plugin == source.id
                ),
            )
        )
    usable = {view.id for view in views}
    for fault in live.found.faults:
        if fault.plugin not in usable:
            views.append(PluginView(fault.plugin, name, "failed", None, fault.message, None, faults=(fault,)))
            usable.add(fault.plugin)
    return tuple(sorted(views, key=lambda view: view.id))


def plugin_view(host: Host, plugin: str, agent: str | None = None) -> PluginView:
    """One plugin as it stands towards `agent`. Raises `UnknownPlugin` with a suggestion, `UnknownAgent`."""
    views = plugin_views(host, agent)
    found = next((view for view in views if folded(view.id) == folded(plugin)), None)
    if found is None:
        raise _unknown(plugin, [view.id for view in views])
    return found


def troubles(host: Host) -> PluginTroubles:
    """What went wrong in finding, loading and applying the plugins of `host`, and what is odd in files that people
    write."""
    from buzz_host.services.warnings import every_warning

    agents = tuple(str(fault) for fault in host.agents.faults)
    return PluginTroubles(host.plugins.faults(), every_warning(host), agents)


def switch(home: Home, plugin: str, *, on: bool, agent: str | None = None) -> Switched:
    """Switch a plugin on or off, for everybody or for `agent` alone; it holds from the next turn on, also in sessions
    that run.

    No plugin is started. Raises `UnknownPlugin` with a suggestion, `UnknownAgent`, `SettingsError`.
    """
    if agent is not None:
        agent = AgentCatalogue.load(home).get(agent).name
    source = find_source(discover(home), plugin)
    enablement = Enablement(home)
    decision = enablement.enable(source, agent) if on else enablement.disable(source, agent)
    return Switched(source.id, agent, decision.enabled, decision.reason)


def find_source(found: Discovery, plugin: str) -> PluginSource:
    """The plugin called `plugin`, where `_` and `-` are the same. Raises `UnknownPlugin` with a suggestion, or with
    what is wrong with the one of that name."""
    for source in found.sources:
        if folded(source.id) == folded(plugin):
            return source
    for fault in found.faults:
        if folded(fault.plugin) == folded(plugin):
            raise UnknownPlugin(f"plugin '{fault.plugin}' cannot be used: {fault.message}")
    raise _unknown(plugin, [source.id for source in found.sources])


def _unknown(plugin: str, there: Iterable[str]) -> UnknownPlugin:
    known = sorted(there)
    near = get_close_matches(plugin, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"the plugins are: {', '.join(known) or 'none'}"
    return UnknownPlugin(f"no plugin is called '{plugin}'; {hint}")
