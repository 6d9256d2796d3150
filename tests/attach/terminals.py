"""The real Claude Code in a real terminal: typed into through tmux, against the rehearsal server, in its own HOME."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from buzz_author.sections import Section, parse
from buzz_host.rehearsal import RecordedRequest, Rehearsal, RehearsalError

DEADLINE_S = 45.0
COLUMNS, LINES = 160, 50
KEY = "sk-rehearsal-needs-no-key"
QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_AUTOUPDATER",
    "DISABLE_BUG_COMMAND",
    "DISABLE_ERROR_REPORTING",
    "DISABLE_TELEMETRY",
)
# What the program shows while it works, and where it waits for a person.
BUSY = "esc to interrupt"
PROMPT = "❯"


def until(holds: Callable[[], Any], what: str, screen: Callable[[], str] = lambda: "") -> Any:
    """What `holds` gives once it gives something; fails after the deadline with what the screen shows."""
    end = time.monotonic() + DEADLINE_S
    while not (found := holds()):
        assert time.monotonic() < end, f"waited in vain for {what}; the screen:\n{screen()}"
        time.sleep(0.05)
    return found


def person(folder: Path, *projects: Path) -> Path:
    """A HOME in which every question that the program asks at its start is answered already."""
    folder.mkdir(exist_ok=True)
    answered = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(each): {"hasTrustDialogAccepted": True} for each in projects},
    }
    (folder / ".claude.json").write_text(json.dumps(answered), encoding="utf-8")
    return folder


class Terminal:
    """One session of the program in a terminal of its own, from `with` to its end."""

    def __init__(self, program: Path, home: Path, project: Path, rehearsal: Rehearsal, *arguments: str) -> None:
        self._socket = home / "tmux"
        self._rehearsal = rehearsal
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "ANTHROPIC_BASE_URL": rehearsal.url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_MAX_RETRIES": "1",
            **dict.fromkeys(QUIET, "1"),
        }
        given = [f"{name}={value}" for name, value in environment.items()]
        self._command = shlex.join(["env", "-i", *given, str(program), *arguments])
        self._project = project

    def __enter__(self) -> Terminal:
        self._tmux(
            "-f", os.devnull, "new-session", "-d", "-x", str(COLUMNS), "-y", str(LINES), "-c", str(self._project),
            self._command,
        )  # fmt: skip
        try:
            self.until(lambda: PROMPT in self.screen() and "for agents" in self.screen(), "the prompt")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the terminal, and with it the program."""
        subprocess.run(self._line("kill-server"), capture_output=True, check=False)

    def screen(self) -> str:
        """What a person sees."""
        done = subprocess.run(self._line("capture-pane", "-p"), capture_output=True, check=False)
        return done.stdout.decode("utf-8", "replace")

    def until(self, holds: Callable[[], Any], what: str) -> Any:
        """What `holds` gives once it gives something."""
        return until(holds, what, self.screen)

    def type(self, text: str) -> None:
        """Type a line and press Enter."""
        self._tmux("send-keys", "-l", text)
        # The program takes text that comes in one piece with its line end for something that was pasted.
        self.until(lambda: text[-20:] in self.screen(), f"{text!r} in the input")
        self._tmux("send-keys", "Enter")

    def idle(self) -> None:
        """Wait until the program waits for the person."""
        self.until(lambda: BUSY not in self.screen(), "the end of the turn")

    def turn(self, text: str) -> RecordedRequest:
        """Type a prompt, and give the first request that carries it, once the turn is over."""
        self.type(text)
        request = self.until(lambda: self.request(text), f"a request with {text!r}")
        assert isinstance(request, RecordedRequest)
        self.until(lambda: self._answered(request.n), f"the answer to request {request.n}")
        self.idle()
        return request

    def request(self, text: str) -> RecordedRequest | None:
        """The first request whose newest message of a person is `text`; None also while a line is being written."""
        try:
            requests = self._rehearsal.requests()
        except RehearsalError:
            return None
        for each in requests:
            if place(each.body, text) is not None:
                return each
        return None

    def _answered(self, number: int) -> bool:
        lines = self._rehearsal.record_path.read_bytes().split(b"\n")[:-1]
        return any(b'"event"' in line and json.loads(line)["n"] == number for line in lines if line)

    def _line(self, *words: str) -> list[str]:
        return ["tmux", "-S", str(self._socket), *words]

    def _tmux(self, *words: str) -> None:
        subprocess.run(self._line(*words), check=True, capture_output=True)


def texts(content: Any) -> list[str]:
    """The texts of a message, those inside of what tools gave back included."""
    if isinstance(content, str):
        return [content]
    found: list[str] = []
    for block in content if isinstance(content, list) else []:
        if isinstance(block.get("text"), str):
            found.append(block["text"])
        elif block.get("type") == "tool_result":
            found += texts(block.get("content"))
    return found


def place(body: Any, prompt: str) -> int | None:
    """The number of the newest message that holds `prompt`, if nothing of the model's comes behind it."""
    messages = body.get("messages", []) if isinstance(body, dict) else []
    for number in range(len(messages) - 1, -1, -1):
        if messages[number]["role"] == "assistant":
            return None
        if any(prompt in text for text in texts(messages[number]["content"])):
            return number
    return None


def arrived(request: RecordedRequest, prompt: str) -> str:
    """Everything that goes to the model with `prompt`: its message, and what the program puts behind it."""
    number = place(request.body, prompt)
    assert number is not None
    body: Any = request.body
    return "\n".join(text for message in body["messages"][number:] for text in texts(message["content"]))


def carried(request: RecordedRequest, prompt: str) -> list[Section]:
    """The sections that go to the model with `prompt`."""
    return [each for each in parse(arrived(request, prompt)) if each.tag in ("plugin-instructions", "plugin-note")]


def before(request: RecordedRequest, prompt: str) -> bytes:
    """Everything of a request that stands before the message with `prompt`."""
    number = place(request.body, prompt)
    body: Any = request.body
    return json.dumps([(each["role"], texts(each["content"])) for each in body["messages"][:number]]).encode()
