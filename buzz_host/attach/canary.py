"""The proof that what a plugin says reaches the model through the hook: a canary, through the person's own program.

Everything is made for the occasion: a home with one plugin, a project that is attached, a folder for the program's own
settings, and a model server of ours that writes down what it receives. No model is called, and nothing of the person's
is touched (HAR-06, AUT-03).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from buzz_author.errors import BuzzError
from buzz_host.attach.attaching import Target, attach
from buzz_host.attach.listener import AttachListener
from buzz_host.ledger import queries
from buzz_host.rehearsal import Rehearsal
from buzz_host.services.host import Host
from buzz_host.settings import Home

PROGRAM_DEADLINE_S: Final = 90.0
VERSION_DEADLINE_S: Final = 10.0
PROMPT: Final = "Say that you are there."
PLUGIN: Final = "canary"
# The program gets a key that opens nothing, and is asked to talk to nobody but the server that it is given.
_ENVIRONMENT: Final[Mapping[str, str]] = {
    "ANTHROPIC_API_KEY": "rehearsal-needs-no-key",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_BUG_COMMAND": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "LANG": "C.UTF-8",
}
_PLUGIN: Final = """inject = ()


def apply(ctx):
    ctx.agents.addInstructions(id="song", text={text!r})
"""


class NoProgram(BuzzError):
    """There is no program to ask."""


@attrs.frozen
class Arrival:
    """Where the text stood in the request to the model: in message `message` of `messages`, of this `role`.

    `behind_prompt`: behind what the person wrote, in the same message or a later one. `wrapped`: inside of a
    `<system-reminder>` of the program's. `verbatim`: all of it, to the byte, as the ledger has it.
    """

    role: str
    message: int
    messages: int
    behind_prompt: bool
    wrapped: bool
    verbatim: bool


@attrs.frozen
class Canary:
    """What came of it: which program was asked, what model it meant to ask, and where the text arrived (None: nowhere);
    `fault` says why not, in one line."""

    program: Path
    version: str
    model: str
    arrival: Arrival | None
    fault: str = ""

    @property
    def holds(self) -> bool:
        """Whether the text arrived, whole, and stands in the ledger as it arrived."""
        return self.arrival is not None and self.arrival.verbatim


async def sing(home: Path | None = None) -> Canary:
    """Attach a project made for it, run the person's `claude` once in it, and look at what it sent.

    `home` is where the harness that knows the program is looked for, if there is no `claude` on the PATH. Raises
    `NoProgram`, and `BuzzError` where attaching itself does not work here.
    """
    program = await _program(home)
    version = await _version(program)
    word = f"canary-{secrets.token_hex(8)}"
    text = f"A canary of Buzz sings here: {word}. “Ünïcode”, 你好, 😀 and \u2028 stay as they are."
    with tempfile.TemporaryDirectory(prefix="buzz-canary-", ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve()
        project = root / "project"
        project.mkdir()
        (root / "person").mkdir()
        made = Home.resolve(root / "home")
        plugins = made.folder(made.plugins)
        (plugins / f"{PLUGIN}.py").write_text(_PLUGIN.format(text=text), encoding="utf-8")
        attach(made, Target.of(project, user=False))
        async with Rehearsal.start() as rehearsal, Host(made.root) as host:
            listener = AttachListener()
            await listener.start(host)
            try:
                fault = await _run(program, project, root / "person", rehearsal.url)
            finally:
                await listener.stop()
            handed = _handed_over(host)
            for request in rehearsal.requests():
                arrival = _arrival(request.body, word, handed)
                if arrival is not None:
                    return Canary(program, version, _model(request.body), arrival)
            asked = rehearsal.requests()
    if not fault:
        fault = (
            "the program asked its model without it: are hooks switched off, by a policy or by --bare?"
            if asked
            else "the program asked no model"
        )
    return Canary(program, version, _model(asked[0].body) if asked else "", None, fault)


async def _program(home: Path | None) -> Path:
    found = shutil.which("claude")
    if found is not None:
        return Path(found).absolute()
    async with Host(home) as host:
        harness = host.plugins.harnesses().get("claude")
        path = (await harness.probe()).path if harness is not None else None
    if path is None:
        raise NoProgram("no `claude` is on the PATH, and no harness knows one: install Claude Code")
    return path


async def _version(program: Path) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise NoProgram(f"{program}: cannot be run ({error.strerror})") from None
    try:
        told, _ = await asyncio.wait_for(process.communicate(), VERSION_DEADLINE_S)
    except TimeoutError:
        await _ended(process)
        return "unknown"
    return told.decode("utf-8", "replace").strip() or "unknown"


async def _run(program: Path, project: Path, person: Path, url: str) -> str:
    """One prompt, in print mode; what went wrong, in one line, or nothing."""
    process = await asyncio.create_subprocess_exec(
        program,
        "-p",
        PROMPT,
        cwd=project,
        env={
            **_ENVIRONMENT,
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(person),
            "CLAUDE_CONFIG_DIR": str(person / ".claude"),
            "ANTHROPIC_BASE_URL": url,
        },
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        said, _ = await asyncio.wait_for(process.communicate(), PROGRAM_DEADLINE_S)
    except TimeoutError:
        return f"the program did not end within {PROGRAM_DEADLINE_S:g} s"
    finally:
        await _ended(process)
    if process.returncode:
        last = said.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"the program ended with {process.returncode}: {last[:300]}"
    return ""


async def _ended(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _handed_over(host: Host) -> str | None:
    """The text of the one prompt, as the ledger has it."""
    with host.store.read() as connection:
        rows = queries.turns(connection, limit=1)
        return queries.turn(connection, rows[0].turn).text if rows else None


def _arrival(body: object, word: str, handed: str | None) -> Arrival | None:
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list):
        return None
    blocks = [
        (number, str(message.get("role")), text)
        for number, message in enumerate(messages, start=1)
        if isinstance(message, dict)
        for text in _texts(message.get("content"))
    ]
    place = next((n for n, (_, _, text) in enumerate(blocks) if word in text), None)
    if place is None:
        return None
    number, role, text = blocks[place]
    prompt = next((n for n, block in enumerate(blocks) if PROMPT in block[2]), len(blocks))
    return Arrival(
        role=role,
        message=number,
        messages=len(messages),
        behind_prompt=prompt < place,
        wrapped=text.startswith("<system-reminder>"),
        verbatim=handed is not None and handed in text,
    )


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [block["text"] for block in content if isinstance(block, dict) and isinstance(block.get("text"), str)]


def _model(body: object) -> str:
    return str(body.get("model", "")) if isinstance(body, dict) else ""
