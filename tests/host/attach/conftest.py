"""What tests of attached sessions stand on: a home, a project, and the client run as the program runs it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import attrs
import pytest

from buzz_host.attach.attaching import Target
from buzz_host.settings import Home

CLIENT_DEADLINE_S = 30.0


@attrs.frozen
class Answer:
    """What the client did: its exit code, what it printed, what the text in it is, what stands on stderr."""

    code: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        """The text for the model; empty where the client printed nothing."""
        if not self.out:
            return ""
        said = json.loads(self.out)
        assert list(said) == ["hookSpecificOutput"]
        assert said["hookSpecificOutput"]["hookEventName"] == "UserPromptSubmit"
        text = said["hookSpecificOutput"]["additionalContext"]
        assert isinstance(text, str)
        return text


Ask = Callable[..., Answer]


@pytest.fixture
def opened(home: Path) -> Home:
    """The home of this test, made."""
    made = Home.resolve(home)
    made.folder()
    return made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of a person whose own settings are nobody's."""
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "person" / ".claude"))
    (tmp_path / "person").mkdir()
    folder = tmp_path / "project"
    folder.mkdir()
    return folder.resolve()


@pytest.fixture
def target(project: Path) -> Target:
    return Target.of(project, user=False)


def hook_input(
    *, prompt: str = "hello", prompt_id: str | None = None, cwd: Path | str = "/", session: str = ""
) -> bytes:
    """What Claude Code 2.1.332 gives its hook: one line of JSON, the prompt last."""
    said = {
        "session_id": session or str(uuid4()),
        "transcript_path": "/nowhere.jsonl",
        "cwd": str(cwd),
        "prompt_id": prompt_id or str(uuid4()),
        "permission_mode": "default",
        "hook_event_name": "UserPromptSubmit",
        "prompt": prompt,
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def hooks_of(settings: Path) -> list[list[str]]:
    """The commands of the hooks in a settings file, as the program would run them."""
    read = json.loads(settings.read_bytes().decode("utf-8-sig"))
    groups = read.get("hooks", {}).get("UserPromptSubmit", [])
    return [[hook["command"], *hook.get("args", [])] for group in groups for hook in group["hooks"]]


@pytest.fixture
def ask(project: Path) -> Ask:
    """Runs one hook as the program does: no shell, the project in the environment, the input on standard input."""

    def run(command: list[str], octets: bytes, folder: Path | None = None, **more: str) -> Answer:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(project.parent / "person"),
            "CLAUDE_PROJECT_DIR": str(folder or project),
            **more,
        }
        done = subprocess.run(
            command,
            input=octets,
            capture_output=True,
            cwd=folder or project,
            env=environment,
            timeout=CLIENT_DEADLINE_S,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


def write_plugin(home: Home, name: str, text: str, *, when: str = "None", more: str = "") -> Path:
    """A plugin file in the home's folder that says `text`."""
    path = home.folder(home.plugins) / f"{name}.py"
    path.write_text(
        "import time\ninject = ()\n\n\ndef apply(ctx):\n"
        f"    ctx.agents.addInstructions(id='one', text={text!r}, when={when})\n{more}",
        encoding="utf-8",
    )
    return path
