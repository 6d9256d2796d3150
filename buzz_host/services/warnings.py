"""What is odd in the files that people write, as lines: for one turn, or all of it (SPC-02, PLG-06).

A warning stops nothing, so whoever sends a turn has to be told: a key that nobody reads, a name that is nobody's. A
turn is told what concerns it; `buzz plugin errors` has all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from buzz_author.errors import BuzzError
from buzz_author.names import folded
from buzz_host.settings.toml_words import dotted

if TYPE_CHECKING:
    from buzz_host.services.host import Host

_FILE: Final = "buzz.toml"
# `freezer` is a slip of the pen for `freeze` (0.92); `release-freeze` is none for `release-notes` (0.74).
SLIP_LIKENESS: Final = 0.85


def every_warning(host: Host) -> tuple[str, ...]:
    """All warnings: of `buzz.toml`, of plugins and their settings, of agents' files."""
    live = host.plugins
    lines = [*live.settings.warnings, *_names(host, None), *_tables(host, only_near=False), *live.found.warnings]
    for source in live.found.sources:
        lines += live.enablement.setting_warnings(source)
    return tuple(dict.fromkeys([*lines, *(str(note) for note in host.agents.warnings)]))


def turn_warnings(host: Host, agent: str | None, resume: str | None = None) -> tuple[str, ...]:
    """The warnings that concern a turn of `agent` (None: the default agent), or of the session to `resume`.

    Empty where there is no such agent or session: the turn itself says so.
    """
    live = host.plugins
    try:
        if resume is not None:
            from buzz_host.sessions.roster import find

            with host.store.read() as connection:
                agent = find(connection, resume).agent
        spec = host.agents.get(agent or live.settings.default_agent)
    except BuzzError:
        return ()
    lines = [*live.settings.warnings, *_names(host, spec.name), *_tables(host, only_near=True)]
    beginnings: list[str] = []
    for source in live.found.sources:
        if live.enablement.enabled_for(source, spec.name):
            lines += live.enablement.setting_warnings(source)
            beginnings += [f"{(source.path or source.where)}", f"plugin '{source.id}': "]
    lines += [line for line in live.found.warnings if line.startswith(tuple(beginnings))]
    return tuple(dict.fromkeys([*lines, *(str(note) for note in spec.warnings)]))


def _names(host: Host, agent: str | None) -> Iterator[str]:
    """A line for each agent or plugin in the lists of `buzz.toml` that is nobody's name; without the lists of other
    agents, where one is named."""
    settings = host.plugins.settings
    agents, plugins = host.agents.names, _plugins(host)
    lists: dict[tuple[str, ...], tuple[str, ...]] = {
        ("disabled_tool_plugins",): settings.disabled_tool_plugins,
        ("forced_enabled_tool_plugins",): settings.forced_enabled_tool_plugins,
    }
    if settings.default_agent not in agents:
        yield _nobody(("default_agent",), "agent", settings.default_agent, agents)
    for name, own in settings.agents.items():
        if name not in agents:
            yield _nobody(("agents", name), "agent", name, agents)
        elif agent not in (None, name):
            continue
        lists["agents", name, "plugins_on"] = own.plugins_on
        lists["agents", name, "plugins_off"] = own.plugins_off
    for path, names in lists.items():
        for name in names:
            if folded(name) not in map(folded, plugins):
                yield _nobody(path, "plugin", name, plugins)


def _tables(host: Host, *, only_near: bool) -> Iterator[str]:
    """A line for each table of settings whose plugin is not here. One that comes by `--plugin` is not always here, so
    with `only_near` a table is told only if it looks like a slip of the pen."""
    plugins = _plugins(host)
    for name in host.plugins.settings.plugins:
        if folded(name) in map(folded, plugins):
            continue
        if not only_near or get_close_matches(name, plugins, n=1, cutoff=SLIP_LIKENESS):
            yield _nobody(("plugins", name), "plugin", name, plugins)


def _plugins(host: Host) -> list[str]:
    found = host.plugins.found
    return sorted({*(each.id for each in found.sources), *(each.plugin for each in found.faults)})


def _nobody(path: tuple[str, ...], kind: str, name: str, there: Iterable[str]) -> str:
    near = get_close_matches(name, list(there), n=1)
    hint = f"; did you mean '{near[0]}'?" if near else f"; buzz {kind} list" if kind == "plugin" else ""
    return f"{_FILE}: {dotted(path)}: no {kind} is called {name!r}{hint}"
