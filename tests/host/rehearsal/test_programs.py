"""The real Codex, goose and Pi against the real server, started by hand as a person may: one turn with a tool each.

What Buzz does with them is tested in tests/harnesses; here is that each takes the server for a model.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from buzz_author.testing.programs import programs
from buzz_host.rehearsal import RecordedRequest, Rehearsal

pytestmark = [pytest.mark.anyio, pytest.mark.req("HAR-05")]

TURN_DEADLINE_S = 60.0
ENDED = "It has ended. É\u2028😀"


async def ran(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """The output of a program that must end well, in a home of its own."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(TURN_DEADLINE_S):
            out, said = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, said.decode("utf-8", "replace")
    return out.decode("utf-8")


def argv_of(harness: str) -> tuple[str, ...]:
    """The words that start the program of a harness."""
    from harnesses import codex, goose, pi

    program = {"codex": codex.CodexHarness, "goose": goose.GooseHarness, "pi": pi.PiHarness}[harness].program
    found = programs().find(harness, program)
    assert found is not None
    return found.argv


def asked(rehearsal: Rehearsal, path: str) -> list[RecordedRequest]:
    """The requests for an answer; what else the program asked stands in the record too."""
    return [request for request in rehearsal.requests() if (request.method, request.path) == ("POST", path)]


@pytest.mark.program("codex")
async def test_codex_runs_a_command_and_tells_its_end(rehearsal: Rehearsal, tmp_path: Path) -> None:
    configuration = f"""
model = "rehearsed"
model_provider = "rehearsal"
approval_policy = "never"
sandbox_mode = "read-only"
check_for_update_on_startup = false
web_search = "disabled"
[model_providers.rehearsal]
name = "rehearsal"
base_url = "{rehearsal.url}/v1"
env_key = "REHEARSAL_KEY"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 2
[analytics]
enabled = false
[features]
apps = false
plugins = false
remote_plugin = false
[skills.bundled]
enabled = false
"""
    (tmp_path / "config.toml").write_text(configuration, encoding="utf-8")
    skill = tmp_path / ".agents" / "skills" / "light"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: light\ndescription: Light.\n---\nrehearse: say wrong\n", "utf-8")
    command = json.dumps({"cmd": "echo the command ran"})
    text = f"Use $light.\nrehearse: fail 500 1 time\nrehearse: call exec_command {command}\nrehearse: say {ENDED}"
    out = await ran(
        (*argv_of("codex"), "exec", "--json", "--skip-git-repo-check", "-s", "read-only", text),
        {"CODEX_HOME": str(tmp_path), "REHEARSAL_KEY": "sk-of-the-test", "RUST_LOG": "off"},
        tmp_path,
    )
    events = [json.loads(line) for line in out.split("\n") if line]
    assert [e["item"]["text"] for e in events if e.get("item", {}).get("type") == "agent_message"] == [ENDED]
    requests = asked(rehearsal, "/v1/responses")
    assert [request.newest_user_text for request in requests] == [text] * 3
    assert b"rehearse: say wrong" in requests[0].raw, "the skill stands in the request, and is nobody's text"
    assert b"the command ran" in requests[2].raw
    assert b"sk-of-the-test" not in rehearsal.record_path.read_bytes()


@pytest.mark.program("goose")
async def test_goose_runs_a_command_and_tells_its_end(rehearsal: Rehearsal, tmp_path: Path) -> None:
    command = json.dumps({"command": "echo the command ran"})
    text = f"rehearse: fail 500 1 time\nrehearse: call shell {command}\nrehearse: say {ENDED}"
    out = await ran(
        (*argv_of("goose"), "run", "--no-session", "-q", "--no-profile", "--with-builtin", "developer", "-t", text),
        {
            "GOOSE_PATH_ROOT": str(tmp_path / "goose"),
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "rehearsed",
            "OPENAI_HOST": rehearsal.url,
            "OPENAI_BASE_PATH": "v1/chat/completions",
            "OPENAI_API_KEY": "sk-of-the-test",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_TELEMETRY_OFF": "1",
            "GOOSE_MODE": "auto",
            "GOOSE_PROVIDER_SKIP_BACKOFF": "true",
            "GOOSE_DISABLE_SESSION_NAMING": "true",
        },
        tmp_path,
    )
    assert ENDED in out
    requests = asked(rehearsal, "/v1/chat/completions")
    assert all(request.newest_user_text.startswith(text) for request in requests)
    assert b"the command ran" in requests[-1].raw
    assert b"sk-of-the-test" not in rehearsal.record_path.read_bytes()


@pytest.mark.program("pi")
@pytest.mark.parametrize(
    ("api", "path", "below"),
    [
        ("openai-completions", "/v1/chat/completions", "/v1"),
        ("openai-responses", "/v1/responses", "/v1"),
        ("anthropic-messages", "/v1/messages", ""),
    ],
)
async def test_pi_runs_a_command_and_tells_its_end_in_each_protocol(
    rehearsal: Rehearsal, tmp_path: Path, api: str, path: str, below: str
) -> None:
    model = {
        "id": "rehearsed", "name": "rehearsed", "contextWindow": 200_000, "maxTokens": 8192, "input": ["text"],
        "reasoning": False, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }  # fmt: skip
    provider = {"baseUrl": rehearsal.url + below, "api": api, "apiKey": "sk-of-the-test", "models": [model]}
    quiet = {"enableInstallTelemetry": False, "quietStartup": True, "retry": {"maxRetries": 2, "baseDelayMs": 10}}
    (tmp_path / "models.json").write_text(json.dumps({"providers": {"rehearsal": provider}}), encoding="utf-8")
    (tmp_path / "settings.json").write_text(json.dumps(quiet), encoding="utf-8")
    command = json.dumps({"command": "echo the command ran"})
    text = f"rehearse: call bash {command}\nrehearse: say {ENDED}"
    out = await ran(
        (*argv_of("pi"), "-p", "--provider", "rehearsal", "--model", "rehearsed", "--no-session", text),
        {"PI_CODING_AGENT_DIR": str(tmp_path), "PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"},
        tmp_path,
    )
    assert out.strip() == ENDED
    requests = [each for each in rehearsal.requests() if each.path.partition("?")[0] == path]
    assert [request.newest_user_text for request in requests] == [text] * 2
    assert b"the command ran" in requests[1].raw
    assert b"sk-of-the-test" not in rehearsal.record_path.read_bytes()
