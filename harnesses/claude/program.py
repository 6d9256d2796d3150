"""The Claude Code program: where it is, which version, and the environment that it runs in.

Nothing here imports the SDK. The environment is a list of what the program gets, not of what it does not: inherited
credentials, proxies and settings of other programs never reach it (SEC-02).
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from buzz_author.endpoints import is_loopback
from buzz_author.harness import Probe, SessionSpec
from harnesses.stdio.environment import LOOPBACK_KEY, PASSED_ON

SDK: Final = "claude_agent_sdk"
SDK_DISTRIBUTION: Final = "claude-agent-sdk"
# The first one that this harness was tried with: verbatim prompts, uuids of what a turn took in, prompts from a file.
SDK_MINIMUM: Final = (0, 2, 189)
INSTALL: Final = "install it with: pip install 'buzz-agents[claude]'"

# Retries are capped: the program's own ten, with growing pauses, keep a person waiting for minutes, even for a 401.
MAX_RETRIES: Final = 2
# What a person may have set for this program's own model. All else that looks like a credential stays behind.
MODEL_KEYS: Final = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
# The SDK gives these to the program by itself; without them the two do not understand each other.
SDK_VARIABLES: Final = (
    "CLAUDE_AGENT_SDK_VERSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE",
    "PWD",
)
QUIET: Final = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_BUG_COMMAND": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    # Every tool stands in the prompt from the first request on: nothing is searched for, and the prefix stays (TRN-07).
    "ENABLE_TOOL_SEARCH": "false",
    # What would go on after a turn, or begin by itself.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
}


def probe() -> Probe:
    """What is installed, by looking at files only; the fault says in one line what to install."""
    spec = importlib.util.find_spec(SDK)
    if spec is None or spec.origin is None:
        return Probe(fault=f"claude-agent-sdk is not installed; {INSTALL}")
    # Here, not above: it costs as much to import as all the rest of a harness that is only listed.
    from importlib.metadata import version as version_of

    version = version_of(SDK_DISTRIBUTION)
    if _numbers(version) < SDK_MINIMUM:
        needed = ".".join(map(str, SDK_MINIMUM))
        return Probe(version=version, fault=f"claude-agent-sdk {version} is too old, {needed} is needed; {INSTALL}")
    bundled = Path(spec.origin).parent / "_bundled" / "claude"
    if os.access(bundled, os.X_OK):
        return Probe(version=f"{_told(bundled)} (claude-agent-sdk {version})", path=bundled)
    import shutil

    found = shutil.which("claude")
    if found is None:
        return Probe(
            version=version,
            fault="claude-agent-sdk came without its Claude Code program, and no 'claude' is on the PATH; "
            "install Claude Code, or the SDK's wheel for this platform",
        )
    return Probe(version=f"claude-agent-sdk {version}", path=Path(found))


def environment(spec: SessionSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """All variables that the program gets in this session; `inherited` is the environment of the host."""
    own = {name: inherited[name] for name in PASSED_ON if name in inherited}
    scratch = str(spec.config_dir / "tmp")
    own |= {
        **QUIET,
        "HOME": str(spec.config_dir),
        "CLAUDE_CONFIG_DIR": str(spec.config_dir),
        "TMPDIR": scratch,
        "CLAUDE_CODE_MAX_RETRIES": str(MAX_RETRIES),
    }
    if spec.model_url is not None:
        # The program puts the path behind it by itself.
        own["ANTHROPIC_BASE_URL"] = spec.model_url.rstrip("/").removesuffix("/v1")
    if spec.model_url is not None and is_loopback(spec.model_url):
        own["ANTHROPIC_API_KEY"] = LOOPBACK_KEY
    else:
        own |= {name: inherited[name] for name in MODEL_KEYS if inherited.get(name)}
    return own


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _told(bundled: Path) -> str:
    try:
        return bundled.with_name("claude.version").read_text(encoding="utf-8").strip().removesuffix(" (Claude Code)")
    except OSError:
        return "of an unknown version"
