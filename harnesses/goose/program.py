"""The goose program: which one, its environment, and how its words about tools and permissions are used.

Everything of goose (configuration, conversations, logs) lies below the harness's own folder. Two sessions share it, so
nothing that belongs to one session is written there: extensions are taken out of each session by itself (SEC-02).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from buzz_author.endpoints import is_loopback, openai_base_url
from buzz_author.harness import Gateway, NpmProgram, Policy, SessionSpec
from buzz_author.tools import Tool, split_wire_name
from harnesses.stdio.environment import LOOPBACK_KEY, PASSED_ON, passed_on

__all__ = ["MODEL_KEYS", "PASSED_ON", "PROGRAM"]

PROGRAM: Final = NpmProgram(
    package="@aaif/goose-binary-linux-x64",
    version="1.52.0",
    executable="@aaif/goose-binary-linux-x64/bin/goose",
    megabytes=287,
    integrity={
        "@aaif/goose-binary-linux-x64": (
            "sha512-2aPCG0HuLUI1cafcez1s1nLlTsNMx7AHWnmAOS/6S9xqmcvY+oXsQA5SUHin1Sf5uphK6pcOCLmgygJ6YQIDaQ=="
        )
    },
)
MODEL_KEYS: Final = ("OPENAI_API_KEY",)
# A model of an endpoint that a person names, where the agent's file names none.
ENDPOINT_MODEL: Final = "default"
CONFIG_FILE: Final = "config/config.yaml"
SERVER_PREFIX: Final = "mcp__"
# No deadline of its own: a stream stays open while the tools run that it has called, and both have deadlines here.
NO_DEADLINE_S: Final = 24 * 3600
QUIET: Final = {
    "GOOSE_DEFAULT_EXTENSION_TIMEOUT": str(NO_DEADLINE_S),
    "GOOSE_DISABLE_KEYRING": "1",
    "GOOSE_DISABLE_SESSION_NAMING": "true",
    "GOOSE_PROVIDER_SKIP_BACKOFF": "true",
    "GOOSE_TELEMETRY_OFF": "1",
    "GOOSE_TOOL_PAIR_SUMMARIZATION": "false",
    "OPENAI_TIMEOUT": str(NO_DEADLINE_S),
    "RUST_LOG": "off",
}
# The program's own tools that a policy may leave in a session; of these, the named ones only read.
OWN_EXTENSIONS: Final = frozenset({"developer"})
READING: Final = frozenset({"tree", "read_image"})


def environment(spec: SessionSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """All variables that the program gets in this session; `inherited` is the environment of the host."""
    own = passed_on(inherited, spec.config_dir) | QUIET
    own |= {"GOOSE_PATH_ROOT": str(spec.config_dir), "GOOSE_MODE": mode(spec.policy)}
    if spec.model_url is not None:
        parts = urlsplit(openai_base_url(spec.model_url))
        own |= {
            "GOOSE_PROVIDER": "openai",
            "OPENAI_HOST": f"{parts.scheme}://{parts.netloc}",
            "OPENAI_BASE_PATH": f"{parts.path.lstrip('/')}/chat/completions",
        }
    key = next((inherited[name] for name in MODEL_KEYS if inherited.get(name)), None)
    if spec.model_url is not None and is_loopback(spec.model_url):
        own["OPENAI_API_KEY"] = LOOPBACK_KEY
    elif key is not None and (spec.model_url is not None or spec.model is not None):
        # A key opens nothing without the name of a model; the program's own login has both.
        own |= {"GOOSE_PROVIDER": "openai", "OPENAI_API_KEY": key}
    model = spec.model or (ENDPOINT_MODEL if spec.model_url is not None else None)
    if model is not None:
        own["GOOSE_MODEL"] = model
    if spec.effort is not None:
        own["GOOSE_THINKING_EFFORT"] = spec.effort
    return own


def mode(policy: Policy) -> str:
    """The program's word for a policy: it asks before each call, or never; the host decides what is asked."""
    return "approve" if policy in ("ask", "read-only") else "auto"


def kept_extensions(policy: Policy) -> frozenset[str]:
    """The program's own extensions that stay in a session."""
    return frozenset() if policy == "plugin-tools-only" else OWN_EXTENSIONS


def servers(tools: tuple[Tool, ...], gateway: Gateway | None) -> list[dict[str, Any]]:
    """The servers of plugins' tools, named so that the names that goose makes are ours."""
    if gateway is None:
        return []
    headers = [{"name": "Authorization", "value": f"Bearer {gateway.token}"}]
    return [
        {"type": "http", "name": SERVER_PREFIX + server, "url": f"{gateway.url}/{server}", "headers": headers}
        for server in sorted({split_wire_name(tool.name)[0] for tool in tools})
    ]
