"""The Pi program: which one, its words, its environment, and the files that it and our extension read.

Two sessions at once share the program's folder, where its settings and the person's login are; what belongs to one
session (its endpoint, its tools, its policy, its system prompt) goes to our extension in a private file, which that
removes as soon as it has read it. No secret is in argv, and no token in the environment (SEC-02).
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from buzz_author.endpoints import is_loopback, openai_base_url
from buzz_author.harness import FoundProgram, Gateway, NpmProgram, Policy, SessionSpec
from buzz_author.json_values import JsonObject
from buzz_author.tools import split_wire_name
from harnesses.stdio import faults
from harnesses.stdio.environment import LOOPBACK_KEY, PASSED_ON, passed_on

__all__ = ["MODEL_KEYS", "PASSED_ON", "PROGRAM"]

PROGRAM: Final = NpmProgram(
    package="@earendil-works/pi-coding-agent",
    version="1.6.0",
    executable="@earendil-works/pi-coding-agent/dist/cli.js",
    megabytes=168,
    node=(22, 19),
    integrity={
        "@earendil-works/pi-agent-core": (
            "sha512-IU/x+2XtE4KIdIkEndZssdLPbIUR38Btj+Q7vjIIXIK7GSamLtDH5jOw/dzBWAvWFAgZ2dslF5sPc6GcGOnS+w=="
        ),
        "@earendil-works/pi-ai": (
            "sha512-9hL+eygFDEiFp//cydeUfmFsKmEqpmvsNPb10Y1W8+m5K9O+sx1hMStfu6nukrBD5sl6mP4RykCYBBNEgsVLfw=="
        ),
        "@earendil-works/pi-coding-agent": (
            "sha512-zX1BVEsshx7A2MRuQ6jfr3RJGWw4Wn+vLq5ZfmlvS1RskhRmByaSZVXH/zcwRrWHO7qPgs98pNCbPOEti/t0fQ=="
        ),
    },
)
MODEL_KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
LOGIN_FILE: Final = "auth.json"
SETUP_VARIABLE: Final = "BUZZ_PI_SETUP"
PROVIDER: Final = "buzz"
# A model of an endpoint that a person names, where the agent's file names none.
ENDPOINT_MODEL: Final = "default"
APIS: Final = ("openai-completions", "openai-responses", "anthropic-messages")
# What is taken of an endpoint that does not say it; `context_tokens` of the plugin's settings is a person's word.
CONTEXT_TOKENS: Final = 128_000
ANSWER_TOKENS: Final = 8_192
MAX_RETRIES: Final = 2
# Longer than a session waits: the harness tells the fault of a model that says nothing, not the program.
HTTP_IDLE_MS: Final = 3_600_000

# A session that starts has its file read within this time, or has failed.
LEFT_BEHIND_S: Final = 300.0

READING: Final = ("find", "grep", "ls", "read")
_ALL: Final = ("bash", "edit", "find", "grep", "ls", "read", "write")
_OWN: Final[Mapping[Policy, tuple[str, ...]]] = {
    "plugin-tools-only": (),
    "read-only": READING,
    "ask": _ALL,
    "all": _ALL,
}
_SETTINGS: Final = {
    "cacheWarming": "off",
    "enableAnalytics": False,
    "enableInstallTelemetry": False,
    "followUpMode": "all",
    "httpIdleTimeoutMs": HTTP_IDLE_MS,
    "quietStartup": True,
    "retry": {"enabled": True, "maxRetries": MAX_RETRIES, "baseDelayMs": 300, "provider": {"maxRetries": 0}},
    "steeringMode": "all",
}
_NOTHING_OF_THE_PERSONS: Final = (
    "--no-extensions",
    "--no-skills",
    "--no-prompt-templates",
    "--no-themes",
    "--no-context-files",
)
# What a version before 1.0 does not know.
_LATER: Final = ("--no-mcp", "--no-approve")


def agent_dir(config_dir: Path) -> Path:
    """The program's own folder: its settings, its login."""
    return config_dir / "agent"


def sessions_dir(config_dir: Path) -> Path:
    """Where the program keeps its conversations."""
    return config_dir / "sessions"


def conversation(config_dir: Path, native_id: str) -> Path | None:
    """The file of a conversation, by the program's id of it."""
    if not native_id or any(letter not in "0123456789abcdefABCDEF-" for letter in native_id):
        return None
    return next(iter(sessions_dir(config_dir).rglob(f"*_{native_id}.jsonl")), None)


def is_before_1(found: FoundProgram) -> bool:
    """Whether the program is of the line before 1.0, which tells and can do less."""
    version = found.version
    if version is None:
        package = next(
            (each / "package.json" for each in found.path.parents if (each / "package.json").is_file()), None
        )
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            version = str(json.loads(package.read_bytes())["version"]) if package is not None else None
    return version is not None and version.startswith("0.")


def words(found: FoundProgram, spec: SessionSpec, resumed: Path | None, settings: JsonObject) -> list[str]:
    """The program and its arguments for one session."""
    argv = list(found.argv)
    bundled = found.path.parent / "bundle" / found.path.name
    if argv[-1] == str(found.path) and bundled.is_file():
        argv[-1] = str(bundled)  # the same program in few files, which starts sooner
    argv += ["--mode", "rpc", "--extension", str(extension()), "--session-dir", str(sessions_dir(spec.config_dir))]
    argv += _NOTHING_OF_THE_PERSONS
    if not is_before_1(found):
        argv += _LATER
    if not _OWN[spec.policy]:
        argv.append("--no-builtin-tools")
    model = model_of(spec, settings)
    if spec.model_url is not None:
        argv += ["--provider", PROVIDER, "--model", model or ENDPOINT_MODEL]
    elif model is not None:
        argv += ["--model", model]
    if spec.effort is not None:
        argv += ["--thinking", spec.effort]
    if resumed is not None:
        argv += ["--session", str(resumed)]
    return argv


def model_of(spec: SessionSpec, settings: JsonObject) -> str | None:
    """The model that the agent's file names, else the one of the settings."""
    named = settings.get("model")
    return spec.model or (named if isinstance(named, str) and named else None)


def environment(spec: SessionSpec, inherited: Mapping[str, str], setup: Path) -> dict[str, str]:
    """All variables that the program gets in this session; `inherited` is the environment of the host."""
    own = own_environment(spec.config_dir, inherited) | {SETUP_VARIABLE: str(setup)}
    if spec.model_url is None:
        own |= {name: inherited[name] for name in MODEL_KEYS if inherited.get(name)}
    return own


def own_environment(config_dir: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """What the program gets in any case: its folders, and no network but the model's."""
    return passed_on(inherited, config_dir) | {
        "PI_CODING_AGENT_DIR": str(agent_dir(config_dir)),
        "PI_OFFLINE": "1",
        "PI_SKIP_VERSION_CHECK": "1",
        "PI_TELEMETRY": "0",
    }


def extension() -> Path:
    """Our extension, a file beside this module."""
    return Path(str(resources.files("harnesses.pi") / "extension.js"))


def setup(
    spec: SessionSpec, gateway: Gateway | None, inherited: Mapping[str, str], settings: JsonObject
) -> dict[str, Any]:
    """What our extension reads. Raises `HarnessError` for settings that mean nothing."""
    tools = []
    for tool in spec.tools:
        server, name = split_wire_name(tool.name)
        schema = {"type": "object", "properties": {}, **tool.input_schema}
        tools.append(
            {
                "name": tool.name,
                "server": server,
                "tool": name,
                "description": tool.description,
                "parameters": schema,
            }
        )
    return {
        "gateway": {"url": gateway.url, "token": gateway.token} if gateway is not None else None,
        "tools": tools,
        "policy": spec.policy,
        "own": list(_OWN[spec.policy]),
        "systemPrompt": spec.system_prompt,
        "provider": _provider(spec, inherited, settings),
    }


def _provider(spec: SessionSpec, inherited: Mapping[str, str], settings: JsonObject) -> dict[str, Any] | None:
    if spec.model_url is None:
        return None
    api = settings.get("api", APIS[0])
    if api not in APIS:
        raise faults.refused(f"[plugins.pi] api = {api!r}: expected one of {', '.join(APIS)}")
    context = settings.get("context_tokens", CONTEXT_TOKENS)
    if not isinstance(context, int) or isinstance(context, bool) or context < 1:
        raise faults.refused(f"[plugins.pi] context_tokens = {context!r}: expected a number of tokens")
    anthropic = api == "anthropic-messages"
    key = LOOPBACK_KEY
    if not is_loopback(spec.model_url):
        key = inherited.get(MODEL_KEYS[1] if anthropic else MODEL_KEYS[0]) or "no-key"
    name = model_of(spec, settings) or ENDPOINT_MODEL
    model = {
        "id": name,
        "name": name,
        "reasoning": spec.effort is not None,
        "input": ["text", "image"],
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": context,
        "maxTokens": min(ANSWER_TOKENS, context),
    }
    url = openai_base_url(spec.model_url)
    # Anthropic's client puts `/v1` behind the address by itself.
    base_url = url.removesuffix("/v1") if anthropic else url
    return {"name": PROVIDER, "config": {"baseUrl": base_url, "api": api, "apiKey": key, "models": [model]}}


def write_settings(config_dir: Path) -> None:
    """The program's settings, the same in all sessions; another one may write them as well. Raises `OSError`."""
    for folder in (agent_dir(config_dir), sessions_dir(config_dir), config_dir / "buzz"):
        folder.mkdir(mode=0o700, exist_ok=True)
    path = agent_dir(config_dir) / "settings.json"
    wanted = json.dumps(_SETTINGS, indent=2)
    with contextlib.suppress(OSError):
        if path.read_text(encoding="utf-8") == wanted:
            return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".settings-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(wanted)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def write_setup(path: Path, said: Mapping[str, Any]) -> None:
    """The private file for our extension; those that hosts left which were killed meanwhile go. Raises `OSError`."""
    for left in path.parent.glob("*.json"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > LEFT_BEHIND_S:
                left.unlink()
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
        json.dump(said, file, default=dict)
