"""The harnesses of a home: which programs can run an agent's turns, whether they are here, what they carry (HAR-06)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import attrs

from buzz_author.errors import PluginFault
from buzz_author.harness import Capabilities, Harness, Installable, LogsIn, NpmProgram, Probe
from buzz_host.plugins.contributions import HARNESSES, Contribution
from buzz_host.plugins.faults import described

if TYPE_CHECKING:
    from buzz_host.services.host import Host

PROBE_DEADLINE_S: Final = 10.0


@attrs.frozen
class HarnessView:
    """One harness: who offers it, what was found of its program, what it can carry.

    `key_present` says whether one of the variables that give access to its model is set; None where it names none.
    `login` is the login of the program itself, None where it has none. `program` is what Buzz can install for it.
    """

    id: str
    title: str
    plugin: str
    capabilities: Capabilities
    probe: Probe
    key_present: bool | None
    login: Literal["logged in", "logged out"] | None = None
    program: NpmProgram | None = None

    @property
    def reaches_a_model(self) -> bool:
        """Whether a session can reach a model without an endpoint being named."""
        return self.key_present is not False or self.login == "logged in"

    @property
    def pinned(self) -> bool | None:
        """Whether the version that is here is the one that Buzz installs and was tested with; None where it installs
        none, or none is here."""
        return (
            None if self.program is None or self.probe.version is None else self.probe.version == self.program.version
        )

    @property
    def ways_to_a_model(self) -> str:
        """What a person can do about a model that cannot be reached, in words."""
        ways = [f"set {' or '.join(self.capabilities.key_variables)}"] if self.capabilities.key_variables else []
        ways += [f"`buzz harness login {self.id}`"] if self.login is not None else []
        return f"{', '.join([*ways, '--model-url'])} or --rehearse"


async def harness_views(host: Host) -> tuple[HarnessView, ...]:
    """Every harness of an active plugin, by id; each is asked once what it finds, all at the same time.

    One that fails, or takes longer than 10 s, is shown with that as its fault.
    """
    offered = host.plugins.contributions.snapshot(HARNESSES)
    # Of two that offer the same id the first, by plugin, is the one that runs turns.
    first = {each.value.id: each for each in reversed(offered)}
    chosen = [first[identifier] for identifier in sorted(first)]
    probes = await asyncio.gather(*(_probe(each) for each in chosen))
    return tuple(
        HarnessView(
            each.value.id,
            each.value.title,
            each.plugin,
            each.value.capabilities,
            probe,
            _key_present(each.value.capabilities),
            _login(each.value, host.home.data / each.value.id),
            each.value.program if isinstance(each.value, Installable) else None,
        )
        for each, probe in zip(chosen, probes, strict=True)
    )


def harness_faults(host: Host) -> tuple[PluginFault, ...]:
    """The faults of plugins: a harness whose plugin failed is not among the views."""
    return host.plugins.faults()


async def _probe(offered: Contribution[Harness]) -> Probe:
    try:
        return await asyncio.wait_for(offered.value.probe(), PROBE_DEADLINE_S)
    except TimeoutError:
        return Probe(fault=f"it did not say within {PROBE_DEADLINE_S:g} s what it finds")
    except Exception as error:
        return Probe(fault=described(offered.plugin, error))


def _key_present(capabilities: Capabilities) -> bool | None:
    variables = capabilities.key_variables
    return any(os.environ.get(each) for each in variables) if variables else None


def _login(harness: Harness, config_dir: Path) -> Literal["logged in", "logged out"] | None:
    if not isinstance(harness, LogsIn):
        return None
    try:
        return "logged in" if harness.logged_in(config_dir) else "logged out"
    except Exception:  # a harness of others: one that cannot tell is not logged in
        return "logged out"
