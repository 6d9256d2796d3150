"""What the person wrote: `buzz.toml` and the agents' files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from buzz_host.agents.catalogue import AgentCatalogue
from buzz_host.services.doctor.checks import Check, note, ok, problem
from buzz_host.settings import Home, Settings, SettingsError

SETTINGS: Final = "settings"
AGENTS: Final = "agents"


def settings_checks(home: Home) -> Iterator[Check]:
    """`buzz.toml`: whether it can be read, and what in it is not known here."""
    try:
        settings = Settings.read(home)
    except SettingsError as error:
        yield problem(SETTINGS, f"{home.config}: {str(error).removeprefix(f'{home.config}: ')}")
        return
    for warning in settings.warnings:
        yield note(SETTINGS, f"{home.config}: {warning}")
    known = AgentCatalogue.load(home).names
    if settings.default_agent not in known:
        yield problem(
            SETTINGS,
            f"{home.config}: default_agent is {settings.default_agent!r}, and the agents are: {', '.join(known)}",
        )
    for name in sorted(set(settings.agents) - set(known)):
        yield note(SETTINGS, f"{home.config}: [agents.{name}] is for an agent that is not there")
    where = home.config if home.config.exists() else "no buzz.toml: the defaults hold"
    yield ok(SETTINGS, f"{where}")


def agent_checks(home: Home) -> Iterator[Check]:
    """The agents' files: those that cannot be used, and what in the others is not as it should be."""
    catalogue = AgentCatalogue.load(home)
    for fault in catalogue.faults:
        yield problem(AGENTS, str(fault))
    for warning in catalogue.warnings:
        yield note(AGENTS, str(warning))
    yield ok(AGENTS, f"usable: {', '.join(catalogue.names)}")
