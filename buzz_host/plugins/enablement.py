"""Which plugins are on, for whom, and why: one rule for every kind of plugin and every surface (REG-01, PLG-06).

Disabled beats off for the agent, which beats on for the agent, which beats forced, which beats what the plugin says of
itself. The decisions are the person's and stand in `buzz.toml`; another process may change them at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, cast

import attrs

from buzz_author.json_values import JsonObject
from buzz_author.names import check_name, folded
from buzz_host.plugins.listeners import Listeners
from buzz_host.plugins.sources import fits, named_type
from buzz_host.settings import Settings, SettingsEdit, edit, signature
from buzz_host.settings.toml_words import dotted, found, unknown_keys

if TYPE_CHECKING:
    from buzz_author.plugins import Disposer
    from buzz_host.plugins.sources import PluginSource
    from buzz_host.settings import Home

Reason = Literal["disabled", "off for the agent", "on for the agent", "forced", "default"]

_FILE: Final = "buzz.toml"


@attrs.frozen
class Decision:
    """Whether a plugin is on, and which rule says so."""

    enabled: bool
    reason: Reason


class Enablement:
    """What the person decided about plugins. Call `refresh` before each turn; it costs one stat.

    Raises `SettingsError` where `buzz.toml` cannot be read.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.RLock()
        self._listeners: Listeners[[Settings]] = Listeners()
        self._read()

    @property
    def settings(self) -> Settings:
        """What `buzz.toml` says, as of the last change or refresh."""
        return self._settings

    def decision(self, source: PluginSource, agent: str | None = None) -> Decision:
        """Whether the plugin is on for `agent`; for None, whether it is on where nothing is said about the agent."""
        settings = self._settings
        if _in(source.id, settings.disabled_tool_plugins):
            return Decision(False, "disabled")
        if agent is not None:
            own = settings.agent(agent)
            if _in(source.id, own.plugins_off):
                return Decision(False, "off for the agent")
            if _in(source.id, own.plugins_on):
                return Decision(True, "on for the agent")
        if _in(source.id, settings.forced_enabled_tool_plugins):
            return Decision(True, "forced")
        return Decision(source.enabled_by_default, "default")

    def enabled_for(self, source: PluginSource, agent: str) -> bool:
        """Whether the plugin is on for `agent`."""
        return self.decision(source, agent).enabled

    def enabled_anywhere(self, source: PluginSource) -> bool:
        """Whether the plugin has to run: it is on for agents in general, or for one that is named."""
        if self.decision(source).enabled:
            return True
        return any(self.enabled_for(source, agent) for agent in self._settings.agents)

    def settings_of(self, source: PluginSource) -> JsonObject:
        """`ctx.settings` of the plugin: what the person set, over the plugin's defaults. A value of a type that the
        plugin does not take gives way to the default; `setting_warnings` says so."""
        usable = {
            key: value
            for key, value in self._own_settings(source).items()
            if key not in source.setting_rules or fits(value, source.setting_rules[key].type)
        }
        merged = {**source.defaults, **usable}
        return cast("JsonObject", MappingProxyType(merged))

    def setting_warnings(self, source: PluginSource) -> tuple[str, ...]:
        """A line for each setting of the plugin that it does not know, or cannot take."""
        own, rules = self._own_settings(source), source.setting_rules
        lines = unknown_keys(_FILE, own, sorted(rules), ("plugins", source.id)) if rules else []
        for key, value in own.items():
            if key in rules and not fits(value, rules[key].type):
                lines.append(
                    f"{_FILE}: {dotted(('plugins', source.id, key))}: expected {named_type(rules[key].type)}, "
                    f"found {found(value)}; the plugin's default holds"
                )
        return tuple(lines)

    def enable(self, source: PluginSource, agent: str | None = None) -> Decision:
        """Switch the plugin on for everybody, or for `agent` alone; gives what holds then.

        It is off all the same where a stronger rule says so: the decision names it. Written when this returns; raises
        `SettingsError` where it cannot be.
        """
        name = source.id

        def change(edited: SettingsEdit) -> None:
            if agent is not None:
                self._take_out(edited, ("agents", agent, "plugins_off"), name, self._settings.agent(agent).plugins_off)
                edited.add(("agents", agent, "plugins_on"), name)
                return
            disabled = self._settings.disabled_tool_plugins
            self._take_out(edited, ("disabled_tool_plugins",), name, disabled)
            if not source.enabled_by_default:
                edited.add(("forced_enabled_tool_plugins",), name)

        self._edit(change, agent)
        return self.decision(source, agent)

    def disable(self, source: PluginSource, agent: str | None = None) -> Decision:
        """Switch the plugin off for everybody, or for `agent` alone; gives what holds then. Raises as `enable`."""
        name = source.id

        def change(edited: SettingsEdit) -> None:
            if agent is None:
                edited.add(("disabled_tool_plugins",), name)
                return
            self._take_out(edited, ("agents", agent, "plugins_on"), name, self._settings.agent(agent).plugins_on)
            edited.add(("agents", agent, "plugins_off"), name)

        self._edit(change, agent)
        return self.decision(source, agent)

    def refresh(self) -> bool:
        """Read `buzz.toml` again if anybody changed it; whether that changed anything.

        Raises `SettingsError` for a file that is broken now; what held before holds on until it is mended.
        """
        with self._lock:
            if signature(self._home) == self._signature:
                return False
            before = self._settings
            self._read()
            changed = self._settings != before
        if changed:
            self._listeners.tell(self._settings)
        return changed

    def subscribe(self, listener: Callable[[Settings], object]) -> Disposer:
        """Call `listener` with the new settings after each change, on the thread that made or noticed it (REG-03)."""
        return self._listeners.subscribe(listener)

    def _own_settings(self, source: PluginSource) -> JsonObject:
        tables = self._settings.plugins
        name = next((name for name in tables if folded(name) == folded(source.id)), source.id)
        return tables.get(source.id) or tables.get(name, {})

    def _edit(self, change: Callable[[SettingsEdit], None], agent: str | None) -> None:
        if agent is not None:
            check_name(agent, "agent")
        with self._lock:
            before = self._settings
            self._read()  # what is changed is what stands in the file now
            edit(self._home, change)
            self._read()
            changed = self._settings != before
        if changed:
            self._listeners.tell(self._settings)

    def _read(self) -> None:
        # The signature first: a change between the two is then read once too often, and never missed.
        now = signature(self._home)
        self._settings = Settings.read(self._home)
        self._signature = now

    @staticmethod
    def _take_out(edited: SettingsEdit, path: tuple[str, ...], name: str, names: Iterable[str]) -> None:
        for each in names:
            if folded(each) == folded(name):
                edited.remove(path, each)


def _in(name: str, names: Iterable[str]) -> bool:
    """Whether `name` is among `names`, where `_` and `-` are the same (PLG-08)."""
    wanted = folded(name)
    return any(folded(each) == wanted for each in names)
