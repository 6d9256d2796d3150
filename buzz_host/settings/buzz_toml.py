"""What stands in `buzz.toml`, read into values: strict about types, lenient about keys that it does not know.

A wrong type is one line with the key's path, what was expected and what was found. An unknown key is a warning with a
suggestion, because a file that a newer version wrote must not stop an older one. `signature` tells for the price of
one stat whether the file has changed since.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, cast, get_args

import attrs

from buzz_author.errors import BuzzError
from buzz_author.json_values import JsonObject, JsonValue
from buzz_host.settings.files import read_bounded
from buzz_host.settings.home import Home
from buzz_host.settings.toml_words import KeyPath, broken, dotted, found, unknown_keys

FILE_NAME: Final = "buzz.toml"
DEFAULT_AGENT: Final = "main"
# Far more than a person writes; a file that grew by mistake must not cost every turn its reading.
FILE_MAX_BYTES: Final = 1024 * 1024

# The same words as `buzz_author.harness.Policy`, whose module costs more to import than settings may take.
Permissions = Literal["ask", "plugin-tools-only", "read-only", "all"]
DEFAULT_PERMISSIONS: Final[Permissions] = "plugin-tools-only"
# Long enough for a person to read what is asked, short enough that a turn nobody watches ends.
PERMISSION_DEADLINE_S: Final = 120.0
PERMISSION_DEADLINE_MIN_S: Final = 1.0
PERMISSION_DEADLINE_MAX_S: Final = 3600.0

Signature: TypeAlias = tuple[int, int, int, int] | None

_TOP_KEYS: Final = (
    "agents",
    "default_agent",
    "disabled_tool_plugins",
    "forced_enabled_tool_plugins",
    "permission_deadline_s",
    "permissions",
    "plugins",
)
_AGENT_KEYS: Final = ("plugins_off", "plugins_on")


class SettingsError(BuzzError):
    """`buzz.toml` cannot be read or written; the message is one line that says where and what to do."""


@attrs.frozen
class AgentSettings:
    """`[agents.<name>]`: the plugins that the person switched on and off for one agent alone (REG-01)."""

    plugins_on: tuple[str, ...] = ()
    plugins_off: tuple[str, ...] = ()


NO_AGENT_SETTINGS: Final = AgentSettings()
_NO_SETTINGS: Final[JsonObject] = MappingProxyType({})


@attrs.frozen
class Settings:
    """Everything that `buzz.toml` says; the defaults where it is silent or missing.

    `permissions` holds for agents whose file says none (PRM-01), `permission_deadline_s` is how long a person is waited
    for. `plugins` holds each plugin's own settings (`ctx.settings`). `warnings` are lines for people, one for each key
    that is not known here.
    """

    disabled_tool_plugins: tuple[str, ...] = ()
    forced_enabled_tool_plugins: tuple[str, ...] = ()
    default_agent: str = DEFAULT_AGENT
    permissions: Permissions = DEFAULT_PERMISSIONS
    permission_deadline_s: float = PERMISSION_DEADLINE_S
    agents: Mapping[str, AgentSettings] = attrs.field(factory=lambda: MappingProxyType({}))
    plugins: Mapping[str, JsonObject] = attrs.field(factory=lambda: MappingProxyType({}))
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, home: Home) -> Settings:
        """The settings of `home`. Raises `SettingsError` for a file that cannot be read, is no TOML, or has a value of
        a wrong type."""
        try:
            return cls.parse(read_text(home))
        except SettingsError as error:
            raise SettingsError(_with_path(str(error), home)) from None

    @classmethod
    def parse(cls, text: str) -> Settings:
        """The settings that stand in `text`. Raises `SettingsError` as `read` does."""
        if not text:
            return cls()
        # Here, not above: a home without the file, as at the first preview, needs no reader of TOML.
        import tomllib

        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise SettingsError(broken(FILE_NAME, error, text)) from None
        except RecursionError:
            raise SettingsError(f"{FILE_NAME}: its values are nested too deeply") from None
        warnings = unknown_keys(FILE_NAME, table, _TOP_KEYS)
        agents = {}
        for name, entry in _table(table, ("agents",)).items():
            path = ("agents", name)
            agent = _as_table(entry, path)
            warnings += unknown_keys(FILE_NAME, agent, _AGENT_KEYS, path)
            agents[name] = AgentSettings(_names(agent, (*path, "plugins_on")), _names(agent, (*path, "plugins_off")))
        plugins = {
            name: _frozen_table(_as_table(entry, ("plugins", name)), ("plugins", name))
            for name, entry in _table(table, ("plugins",)).items()
        }
        return cls(
            disabled_tool_plugins=_names(table, ("disabled_tool_plugins",)),
            forced_enabled_tool_plugins=_names(table, ("forced_enabled_tool_plugins",)),
            default_agent=_text(table, ("default_agent",), DEFAULT_AGENT),
            permissions=_permissions(table),
            permission_deadline_s=_seconds(
                table,
                ("permission_deadline_s",),
                PERMISSION_DEADLINE_S,
                (PERMISSION_DEADLINE_MIN_S, PERMISSION_DEADLINE_MAX_S),
            ),
            agents=MappingProxyType(agents),
            plugins=MappingProxyType(plugins),
            warnings=tuple(warnings),
        )

    def agent(self, name: str) -> AgentSettings:
        """What is set for the agent `name`; empty where nothing is."""
        return self.agents.get(name, NO_AGENT_SETTINGS)

    def plugin(self, name: str) -> JsonObject:
        """The own settings of the plugin `name`; empty where there are none."""
        return self.plugins.get(name, _NO_SETTINGS)


def signature(home: Home) -> Signature:
    """What changes whenever `buzz.toml` does: asked before each turn, it costs one stat. None: there is no file.

    Raises `SettingsError` where even that may not be asked.
    """
    try:
        status = home.config.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{home.config}: cannot be read ({error.strerror})") from None
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


def read_text(home: Home) -> str:
    """The text of `buzz.toml`, without a byte-order mark; empty where there is no file.

    Raises `SettingsError` for what is no regular file, is larger than `FILE_MAX_BYTES`, or is not UTF-8.
    """
    try:
        return read_bounded(home.config, FILE_MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise SettingsError(f"{home.config}: is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    except ValueError as error:
        raise SettingsError(f"{home.config}: {error}: put a file of settings in its place") from None
    except OSError as error:
        raise SettingsError(f"{home.config}: cannot be read ({error.strerror})") from None


def _with_path(line: str, home: Home) -> str:
    """`line` with the whole path of the file: a person may have several homes."""
    return str(home.config) + line.removeprefix(FILE_NAME) if line.startswith(f"{FILE_NAME}:") else line


def _table(table: Mapping[str, object], path: KeyPath) -> Mapping[str, object]:
    return _as_table(table.get(path[-1], {}), path)


def _as_table(value: object, path: KeyPath) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise wrong(path, "a table", value)
    return value


def _text(table: Mapping[str, object], path: KeyPath, default: str) -> str:
    value = table.get(path[-1], default)
    if not isinstance(value, str):
        raise wrong(path, "a text", value)
    return value


def _permissions(table: Mapping[str, object]) -> Permissions:
    value = table.get("permissions", DEFAULT_PERMISSIONS)
    if value not in get_args(Permissions):
        raise wrong(("permissions",), " or ".join(f'"{each}"' for each in get_args(Permissions)), value)
    return cast("Permissions", value)


def _seconds(table: Mapping[str, object], path: KeyPath, default: float, bounds: tuple[float, float]) -> float:
    value = table.get(path[-1], default)
    low, high = bounds
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise wrong(path, f"a number of seconds from {low:g} to {high:g}", value)
    return float(value)


def _names(table: Mapping[str, object], path: KeyPath) -> tuple[str, ...]:
    value = table.get(path[-1], [])
    if not isinstance(value, list):
        raise wrong(path, "a list of texts", value)
    for number, each in enumerate(value):
        if not isinstance(each, str):
            raise wrong((*path[:-1], f"{path[-1]}[{number}]"), "a text", each)
    return tuple(dict.fromkeys(value))


def _frozen_table(table: Mapping[str, object], path: KeyPath) -> JsonObject:
    return MappingProxyType({key: _frozen(value, (*path, key)) for key, value in table.items()})


def _frozen(value: object, path: KeyPath) -> JsonValue:
    """A JSON value that nobody can change: a plugin is handed this one as its settings."""
    if isinstance(value, Mapping):
        return _frozen_table(value, path)
    if isinstance(value, list):
        return tuple(_frozen(each, (*path[:-1], f"{path[-1]}[{n}]")) for n, each in enumerate(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise wrong(path, "a finite number", value)
    if isinstance(value, str | bool | int | float):
        return value
    raise wrong(path, "a text, number, true, false, list or table (a date or time goes in quotes)", value)


def wrong(path: KeyPath, expected: str, value: object) -> SettingsError:
    """The error for a value of a wrong type: key path, expected, found."""
    return SettingsError(f"{FILE_NAME}: {dotted(path)}: expected {expected}, found {found(value)}")
