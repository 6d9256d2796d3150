"""The Codex program: which one, its environment, and the configuration that every session shares.

The configuration file holds what is the same for all sessions, so two that start at once write the same bytes; what
belongs to one session (its endpoint, its policy, its tools) is said when the conversation is opened. The login of the
person lies beside it, in `auth.json` (SEC-02).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from buzz_author.endpoints import is_loopback, openai_base_url
from buzz_author.harness import Gateway, NpmProgram, Policy, SessionSpec
from buzz_author.tools import split_wire_name
from harnesses.stdio.environment import LOOPBACK_KEY, PASSED_ON, passed_on

__all__ = ["MODEL_KEYS", "PASSED_ON", "PROGRAM"]

PROGRAM: Final = NpmProgram(
    package="@openai/codex",
    version="0.171.0",
    executable="@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    megabytes=424,
    integrity={
        "@openai/codex": (
            "sha512-1IOFzL2Xg86tLdw6kDo3GoKbkQENgQi7TI6rlEvN132R7ngSw7SNOIQoTcnKzSZZ8kf9N9GynCweSoaFbqk2Eg=="
        ),
        "@openai/codex-linux-x64": (
            "sha512-l66NZkQgdk2C3pbcfULDz42yEUB581MVA6I+Y43Wp4OIqEy73HCdmZ0GTjeAHY2ycuH4N00d9VsLrwT1jxshTw=="
        ),
    },
)
MODEL_KEYS: Final = ("OPENAI_API_KEY",)
LOGIN_FILE: Final = "auth.json"
KEY_VARIABLE: Final = "BUZZ_MODEL_KEY"
PROVIDER: Final = "buzz"
# A model of an endpoint that a person names, where the agent's file names none.
ENDPOINT_MODEL: Final = "default"
MAX_RETRIES: Final = 2
TOOL_DEADLINE_S: Final = 3600
SERVER_START_S: Final = 10

CONFIG: Final = """\
# Written by Buzz at each start; what a session needs beside it is said to the program when it starts.
check_for_update_on_startup = false
web_search = "disabled"

[analytics]
enabled = false

[feedback]
enabled = false

[history]
persistence = "none"

[features]
plugins = false
remote_plugin = false
"""
# Off in every session: what would ask the network, or let the program act outside of the turn it was given.
_OFF: Final = (
    "apps",
    "browser_use",
    "computer_use",
    "goals",
    "hooks",
    "image_generation",
    "instant_interrupt",
    "multi_agent",
    "plugins",
    "remote_plugin",
    "shell_snapshot",
    "skill_search",
    "sleep_tool",
    "tool_suggest",
    "unbounded_connection_retries",
)
# The program's own tools.
_OWN_TOOLS: Final = ("shell_tool", "unified_exec", "view_image")


def environment(spec: SessionSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """All variables that the program gets in this session; `inherited` is the environment of the host."""
    own = passed_on(inherited, spec.config_dir) | {"CODEX_HOME": str(spec.config_dir), "RUST_LOG": "off"}
    if spec.model_url is not None and is_loopback(spec.model_url):
        own[KEY_VARIABLE] = LOOPBACK_KEY
    elif key := next((inherited[name] for name in MODEL_KEYS if inherited.get(name)), None):
        own[KEY_VARIABLE] = key
    return own


def write_config(folder: Path) -> None:
    """Put the shared configuration there, unless it is there; another session may do the same. Raises `OSError`."""
    path = folder / "config.toml"
    with contextlib.suppress(OSError):
        if path.read_text(encoding="utf-8") == CONFIG:
            return
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".config-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(CONFIG)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def thread_settings(
    spec: SessionSpec, gateway: Gateway | None, environment: Mapping[str, str], idle_s: float
) -> dict[str, Any]:
    """What belongs to one session, for opening or resuming its conversation."""
    own_tools = spec.policy != "plugin-tools-only"
    approval, sandbox = _BY_POLICY[spec.policy]
    config: dict[str, Any] = {
        "features": dict.fromkeys(_OFF, False) | dict.fromkeys(_OWN_TOOLS, own_tools),
        "skills": {"bundled": {"enabled": False}},
        "agents": {"enabled": False},
        "model_reasoning_summary": "none",
    }
    if spec.effort is not None:
        config["model_reasoning_effort"] = spec.effort
    settings: dict[str, Any] = {
        "cwd": str(spec.cwd),
        "approvalPolicy": approval,
        "sandbox": sandbox,
        "baseInstructions": spec.system_prompt,
        "config": config,
    }
    model = spec.model
    if spec.model_url is not None or KEY_VARIABLE in environment:
        url = openai_base_url(spec.model_url) if spec.model_url is not None else "https://api.openai.com/v1"
        settings["modelProvider"] = PROVIDER
        config["model_providers"] = {
            PROVIDER: {
                "name": PROVIDER,
                "base_url": url,
                "env_key": KEY_VARIABLE,
                "wire_api": "responses",
                "requires_openai_auth": False,
                "request_max_retries": 0,  # those are not told
                "stream_max_retries": MAX_RETRIES,
                "stream_idle_timeout_ms": int(idle_s * 1000),
            }
        }
        model = model or (ENDPOINT_MODEL if spec.model_url is not None else None)
    if model is not None:
        settings["model"] = model
    if spec.tools and gateway is not None:
        config["mcp_servers"] = {
            server: {
                "url": f"{gateway.url}/{server}",
                "http_headers": {"Authorization": f"Bearer {gateway.token}"},
                "default_tools_approval_mode": "approve",  # the host asks where the policy wants it
                "required": True,
                "supports_parallel_tool_calls": True,
                "startup_timeout_sec": SERVER_START_S,
                "tool_timeout_sec": TOOL_DEADLINE_S,
            }
            for server in sorted({split_wire_name(tool.name)[0] for tool in spec.tools})
        }
    return settings


# The program's own words: when it asks, and what its commands may touch where it does not.
_BY_POLICY: Final[Mapping[Policy, tuple[str, str]]] = {
    "plugin-tools-only": ("never", "read-only"),
    "read-only": ("never", "read-only"),
    "ask": ("untrusted", "workspace-write"),
    "all": ("never", "danger-full-access"),
}
