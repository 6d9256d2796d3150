"""The Claude plugin: what it registers, what it finds, what it passes on, and how it words what goes wrong."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from buzz_author.harness import Harness, SessionSpec
from buzz_author.plugins import PluginContext
from buzz_author.testing import spec_for
from buzz_author.testing.programs import claude_program
from harnesses import claude
from harnesses.claude import program
from tests.harnesses.claude_kind import CLAUDE

pytestmark = pytest.mark.anyio
PERSON = {
    "PATH": "/bin",
    "LANG": "C.UTF-8",
    "ANTHROPIC_API_KEY": "sk-person",
    "ANTHROPIC_AUTH_TOKEN": "",
    "ANTHROPIC_BASE_URL": "http://elsewhere.example",
    "CLAUDE_CODE_USE_BEDROCK": "1",
    "OPENAI_API_KEY": "sk-other",
    "HTTPS_PROXY": "http://user:secret@proxy.example",
}


def spec(tmp_path: Path, model_url: str | None) -> SessionSpec:
    made = spec_for(CLAUDE, tmp_path, "")
    return SessionSpec(made.session, made.agent, made.cwd, made.config_dir, "", model_url=model_url)


@pytest.mark.req("HAR-02", "PLG-01")
def test_the_plugin_registers_its_harness() -> None:
    registered: list[Harness] = []
    ctx = SimpleNamespace(agents=SimpleNamespace(registerHarness=registered.append), log=logging.getLogger("p"))
    assert tuple(claude.inject) == ("agents",)
    claude.apply(cast(PluginContext, ctx))
    (harness,) = registered
    assert (harness.id, harness.title) == ("claude", "Claude Code")
    carries = harness.capabilities
    assert (carries.carries_sections, carries.steer, carries.resume) == (True, "folds", True)
    assert (carries.tools, carries.permission_requests) == ("in-process", True)
    assert harness.encode("/as it is", cast(SessionSpec, None)) == "/as it is"


@pytest.mark.claude
@pytest.mark.req("HAR-02", "HAR-06")
def test_looking_for_the_program_imports_no_sdk_and_starts_nothing() -> None:
    script = (
        "import asyncio, sys; from harnesses.claude import ClaudeHarness; "
        "found = asyncio.run(ClaudeHarness().probe()); print(found.version, found.path, found.fault, sep='|'); "
        "sys.exit('claude_agent_sdk' in sys.modules or 'mcp' in sys.modules or 'pydantic' in sys.modules)"
    )
    root = Path(claude.__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    version, path, fault = ran.stdout.strip().split("|")
    assert importlib.metadata.version("claude-agent-sdk") in version
    assert (path, fault) == (str(claude_program()), "None")


@pytest.mark.req("HAR-06", "OPS-01")
async def test_what_is_missing_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    found = await claude.ClaudeHarness().probe()
    assert found.path is None
    assert found.fault == "claude-agent-sdk is not installed; install it with: pip install 'buzz-agents[claude]'"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / "__init__.py")))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.9")
    assert "0.1.9 is too old, 0.2.189 is needed" in str((await claude.ClaudeHarness().probe()).fault)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.3.0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no 'claude' is on the PATH" in str((await claude.ClaudeHarness().probe()).fault)
    (tmp_path / "claude").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "claude").chmod(0o755)
    found = await claude.ClaudeHarness().probe()
    assert (found.path, found.fault) == (tmp_path / "claude", None)


@pytest.mark.req("SEC-02")
@pytest.mark.parametrize(
    ("model_url", "key"),
    [
        (None, "sk-person"),
        ("https://gateway.example/anthropic", "sk-person"),
        ("http://127.0.0.1:8080", program.LOOPBACK_KEY),
        ("http://[::1]:8080", program.LOOPBACK_KEY),
        ("http://localhost:8080", program.LOOPBACK_KEY),
    ],
)
def test_a_persons_key_goes_to_a_provider_and_never_to_a_loopback_model(
    tmp_path: Path, model_url: str | None, key: str
) -> None:
    given = program.environment(spec(tmp_path, model_url), PERSON)
    assert given["ANTHROPIC_API_KEY"] == key
    assert given.get("ANTHROPIC_BASE_URL") == model_url
    assert given["PATH"] == "/bin"
    assert not {"CLAUDE_CODE_USE_BEDROCK", "OPENAI_API_KEY", "HTTPS_PROXY", "ANTHROPIC_AUTH_TOKEN"} & given.keys()
    assert given["CLAUDE_CONFIG_DIR"] == str(tmp_path / "data" / "claude")


@pytest.mark.claude
@pytest.mark.req("HAR-03")
@pytest.mark.parametrize(
    ("status", "said", "kind"),
    [
        (None, "API Error: Connection refused (ECONNREFUSED)", "connection"),
        (None, "API Error: Request timed out.", "timeout"),
        (None, "API Error: something else", "unknown"),
        (404, "no such model", "invalid-request"),
        (413, "too large", "invalid-request"),
        (504, "gateway", "timeout"),
        (503, "unavailable", "overloaded"),
    ],
)
def test_each_fault_of_a_model_has_its_kind(status: int | None, said: str, kind: str) -> None:
    from claude_agent_sdk import ResultMessage

    from harnesses.claude import faults

    result = ResultMessage("success", 1, 1, True, 1, "s", api_error_status=status, terminal_reason="api_error")
    error = faults.of_result(result, said, "server_error")
    assert (error.kind, error.status, error.native) == (kind, status, said)


@pytest.mark.claude
@pytest.mark.req("HAR-03")
def test_without_a_login_the_fault_is_authentication() -> None:
    from claude_agent_sdk import ResultMessage

    from harnesses.claude import faults

    error = faults.of_result(ResultMessage("success", 1, 1, True, 1, "s"), "Not logged in", "authentication_failed")
    assert (error.kind, error.status, error.retryable) == ("authentication", None, False)


@pytest.mark.claude
@pytest.mark.req("HAR-03")
async def test_each_fault_of_the_program_has_its_kind() -> None:
    import claude_agent_sdk as sdk

    from harnesses.claude import faults

    tail = faults.StderrTail()
    for number in range(1000):
        tail.add(f"line {number} " + "x" * 10_000)
    assert len(str(tail)) <= faults.TAIL_CHARACTERS
    for raised, kind in (
        (sdk.ProcessError("failed", exit_code=-9), "process-died"),
        (sdk.ProcessError("failed", exit_code=1), "process-died"),
        (sdk.ResultError("x", {"errors": ["No conversation found"]}, 1), "invalid-request"),
        (sdk.CLINotFoundError("Claude Code not found"), "invalid-request"),
        (sdk.CLIConnectionError("Working directory does not exist: /x"), "invalid-request"),
        (sdk.CLIConnectionError("not ready"), "process-died"),
        (sdk.CLIJSONDecodeError("{", ValueError("too long")), "unknown"),
        (TimeoutError(), "timeout"),
        (RuntimeError("odd"), "unknown"),
    ):
        error = faults.of_exception(raised, faults.StderrTail())
        assert error.kind == kind
        assert error.native
        assert "Check stderr" not in error.native
