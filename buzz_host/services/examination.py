"""A canary through the real program of a harness: whether what a plugin says reaches the model, where, and what else.

One rehearsed turn in a home made for it, with one plugin whose instructions hold a word that nobody else knows, and a
tool that answers with another. What counts is what the model server wrote down. Nothing of the person's is touched, no
model is called, and the programs are those of the person's home (HAR-06, SEC-02).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from buzz_author.errors import BuzzError
from buzz_author.tools import wire_name
from buzz_host.plugins.contributions import HARNESSES
from buzz_host.services.harnesses import HarnessView, harness_views
from buzz_host.services.host import Host
from buzz_host.sessions.events import ToolResult, TurnCompleted, TurnStarted
from buzz_host.settings import Home

if TYPE_CHECKING:
    from buzz_host.rehearsal import RecordedRequest

DEADLINE_S: Final = 60.0
PLUGIN: Final = "canary"
TOOL: Final = "sing"
BEHIND_MAX_CHARACTERS: Final = 400
_PLUGIN: Final = """from buzz_author import mcp_result, tool

inject = ("agents",)


@tool("sing", "Sing.", {{}})
async def sing(arguments):
    return mcp_result({answer!r})


def apply(ctx):
    ctx.agents.addInstructions(id="song", text={text!r})
    ctx.agents.addTool(sing)
"""


@attrs.frozen
class Arrived:
    """Where the turn's text stood in the request: message `message` of `messages`, of this `role`.

    `newest` says that it is the newest user message, `last` that it is the last text in it. `verbatim`: the text that
    the ledger has stands there to the byte. `behind` is what the program itself added behind it, cut if it is long.
    """

    role: str
    message: int
    messages: int
    newest: bool
    last: bool
    verbatim: bool
    behind: str


@attrs.frozen
class Examination:
    """What came of it. `fault` says why it failed, or why it is not here, in one line.

    `tool`: whether the answer of a plugin's tool reached the model; `none` where the harness declares no tools.
    `exposed` are the names of the host's variables that the program gets; None where the harness does not say.
    """

    harness: str
    title: str
    state: Literal["holds", "fails", "not here"]
    version: str | None = None
    path: Path | None = None
    pinned: bool | None = None
    carries_sections: bool = True
    arrived: Arrived | None = None
    tool: Literal["answered", "failed", "none"] = "none"
    exposed: tuple[str, ...] | None = None
    seconds: float = 0.0
    fault: str = ""


async def examine(host: Host, identifier: str) -> Examination:
    """Examine the harness `identifier` of `host`. Raises `BuzzError` where there is none."""
    await host.plugins.refresh()
    host.plugins.harness(identifier)
    view = next(each for each in await harness_views(host) if each.id == identifier)
    found = Examination(
        view.id,
        view.title,
        "not here",
        view.probe.version,
        view.probe.path,
        view.pinned,
        view.capabilities.carries_sections,
        exposed=_exposed(view),
        fault=view.probe.fault or "",
    )
    if view.probe.fault is not None:
        return found
    began = monotonic()
    try:
        async with asyncio.timeout(DEADLINE_S):
            found = await _canary(host, view, found)
    except TimeoutError:
        found = attrs.evolve(found, state="fails", fault=f"the turn was not over within {DEADLINE_S:g} s")
    except BuzzError as error:
        found = attrs.evolve(found, state="fails", fault=str(error))
    return attrs.evolve(found, seconds=round(monotonic() - began, 2))


async def _canary(host: Host, view: HarnessView, found: Examination) -> Examination:
    word, answer = f"canary-{secrets.token_hex(8)}", f"song-{secrets.token_hex(8)}"
    text = f"A canary of Buzz sings here: {word}. “Ünïcode”, 你好, 😀 and \u2028 stay as they are, as does $word."
    with tempfile.TemporaryDirectory(prefix="buzz-canary-", ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve()
        made = Home.resolve(root / "home")
        made.folder().joinpath("harnesses").symlink_to(host.programs.folder)
        plugin = made.folder(made.plugins) / f"{PLUGIN}.py"
        plugin.write_text(_PLUGIN.format(text=text, answer=answer), encoding="utf-8")
        work = root / "work"
        work.mkdir()
        async with Host(made.root, plugins=_of_the_person(host, view)) as own:
            calls = view.capabilities.tools != "none"
            message = f"rehearse: call {wire_name(PLUGIN, TOOL)} {{}}\nrehearse: say Done." if calls else "Sing."
            text_sent, results, completed = "", 0, None
            async with own.session(harness=view.id, rehearse=True, cwd=work) as session:
                async with session.turn(message) as events:
                    async for event in events:
                        match event:
                            case TurnStarted():
                                text_sent = event.text
                            case ToolResult(is_error=False):
                                results += 1
                            case TurnCompleted():
                                completed = event
                requests = session.rehearsal.requests() if session.rehearsal is not None else []
    arrived = next((place for each in requests if (place := _arrived(each, word, text_sent)) is not None), None)
    heard = any(answer in _text_of(each.body) for each in requests)
    tool: Literal["answered", "failed", "none"] = "none" if not calls else "answered" if heard and results else "failed"
    found = attrs.evolve(found, arrived=arrived, tool=tool)
    fault = _fault(found, completed, asked=bool(requests))
    return attrs.evolve(found, state="fails" if fault else "holds", fault=fault)


def _fault(found: Examination, completed: TurnCompleted | None, *, asked: bool) -> str:
    if completed is None or completed.status != "completed":
        why = completed.error if completed is not None and completed.error is not None else "it was not completed"
        return f"the turn failed: {why}"
    if not asked:
        return "the program asked no model"
    if found.carries_sections and found.arrived is None:
        return "the program asked its model without what the plugin says"
    if not found.carries_sections and found.arrived is not None:
        return "it declares that it carries no sections, and carries them"
    if found.arrived is not None and not found.arrived.verbatim:
        return "the program changed the text: what the ledger has is not what the model received"
    if found.arrived is not None and not (found.arrived.newest and found.arrived.last):
        return "the text is not the last one of the newest user message"
    if found.tool == "failed":
        return "the answer of a plugin's tool did not reach the model"
    return ""


def _of_the_person(host: Host, view: HarnessView) -> Sequence[Path]:
    """The plugin that offers the harness, where it is one of the home; a package's own is found by itself."""
    offered = next(each for each in host.plugins.contributions.snapshot(HARNESSES) if each.value.id == view.id)
    source = next((each for each in host.plugins.found.sources if each.id == offered.plugin), None)
    return (source.path,) if source is not None and source.path is not None and source.form != "module" else ()


def _exposed(view: HarnessView) -> tuple[str, ...] | None:
    inherits = view.capabilities.inherits
    if inherits is None:
        return None
    return tuple(name for name in dict.fromkeys((*view.capabilities.key_variables, *inherits)) if name in os.environ)


def _arrived(request: RecordedRequest, word: str, sent: str) -> Arrived | None:
    body = request.body
    messages = (body.get("messages") or body.get("input")) if isinstance(body, dict) else None
    if not isinstance(messages, list):
        return None
    blocks = [
        (number, str(each.get("role", "")), text)
        for number, each in enumerate(messages, start=1)
        if isinstance(each, dict)
        for text in _texts(each.get("content"))
    ]
    place = next((n for n in reversed(range(len(blocks))) if word in blocks[n][2]), None)
    if place is None:
        return None
    number, role, text = blocks[place]
    of_users = [n for n, each in enumerate(blocks) if each[1] == "user"]
    newest = bool(of_users) and blocks[of_users[-1]][0] == number
    verbatim = bool(sent) and sent in text
    behind = text.rpartition(sent)[2] if verbatim else ""
    return Arrived(
        role=role,
        message=number,
        messages=len(messages),
        newest=newest,
        last=newest and of_users[-1] == place,
        verbatim=verbatim,
        behind=behind if len(behind) <= BEHIND_MAX_CHARACTERS else f"{behind[:BEHIND_MAX_CHARACTERS]}…",
    )


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [each["text"] for each in content if isinstance(each, Mapping) and isinstance(each.get("text"), str)]


def _text_of(value: Any) -> str:
    """All texts in a request, one after another."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(_text_of(each) for each in value.values())
    return "\n".join(_text_of(each) for each in value) if isinstance(value, list) else ""
