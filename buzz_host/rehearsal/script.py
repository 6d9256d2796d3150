"""The script language: lines that tell the rehearsed model what to do (docs/rehearsal.md).

A directive is a line that starts with `rehearse:` in the newest event of a turn's text; a script file holds the
same directives without that word. Lines are found by a plain scan and never through `buzz_author`: an answer must
not depend on the code that it is there to test.
"""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from buzz_host.rehearsal.neutral import NotUnderstood

PREFIX = "rehearse:"
EVENT_TAGS = (
    "buzz-event",
    "agent-message",
    "new-message-arrived-while-you-were-working",
    "watch-task",
    "observed-message",
    "buzz-timer",
)
WAIT_MAX_S = 3600.0
PACE_MAX_S = 60.0
TIMES_MAX = 1000
STATUS_MIN, STATUS_MAX = 400, 599
SCRIPT_MAX_BYTES = 64 * 1024 * 1024
TOOL_NAME_MAX = 256
QUOTE_MAX_CHARACTERS = 80
Fault = Literal["fail", "drop", "hang"]
FAULTS: Mapping[str, Fault] = {"fail": "fail", "drop": "drop", "hang": "hang"}
VERBS = "say, echo, report, call, wait, pace, fail, drop, hang"


class Say(NamedTuple):
    """Say this text."""

    text: str


class Echo(NamedTuple):
    """Say the newest user text, whole."""


class Report(NamedTuple):
    """Say what the tools gave back, or else which sections were received: the default answer."""


class Call(NamedTuple):
    """Call a tool."""

    name: str
    arguments: dict[str, object]


class Step(NamedTuple):
    """What to do with one request, or with `times` of them (faults only; None: with all that come).

    An answer has parts, a fault has none. `said` is the directive as a person can find it.
    """

    said: str
    parts: tuple[Say | Echo | Report | Call, ...] = ()
    wait_s: float = 0.0
    pace_s: float = 0.0
    fault: Fault | None = None
    status: int = 0
    times: int | None = 1

    @property
    def calls_tools(self) -> bool:
        """Whether the program will ask again after this answer."""
        return any(isinstance(part, Call) for part in self.parts)


def opens_event(line: str) -> bool:
    """Whether an event section opens at the start of this line."""
    return line.startswith("<") and any(line.startswith((f"<{tag}>", f"<{tag} ")) for tag in EVENT_TAGS)


def newest_event(text: str) -> list[str]:
    """The lines of the last event section of a turn's text; all lines where no event opens in it.

    Texts of failed turns that a program sends again stand in front, so the last one is the newest.
    """
    lines = text.split("\n")
    opened = [number for number, line in enumerate(lines) if opens_event(line)]
    if not opened:
        return lines
    first = opened[-1]
    tag = next(t for t in EVENT_TAGS if lines[first].startswith((f"<{t}>", f"<{t} ")))
    closing = f"</{tag}>"
    ends = (number for number in range(first + 1, len(lines)) if lines[number].rstrip("\r") == closing)
    return lines[first + 1 : next(ends, len(lines))]


def steps_of_text(text: str) -> tuple[Step, ...]:
    """The script in the newest event of a turn's text; empty where there is none.

    Raises `NotUnderstood` for a directive that means nothing, and for one that no request can reach: within one
    turn a program asks again only after a tool call or a fault.
    """
    directives = [
        (f"line {number}", line.rstrip("\r")[len(PREFIX) :])
        for number, line in enumerate(newest_event(text), start=1)
        if line.startswith(PREFIX)
    ]
    steps = _steps(directives)
    for before, step in itertools.pairwise(steps):
        if before.fault is None and not before.calls_tools:
            raise NotUnderstood(f"{step.said} is never reached: the answer before it calls no tool, so the turn ends")
    return steps


def steps_of_file(path: Path) -> tuple[Step, ...]:
    """The script in a file: JSON (a list of strings, or {"answers": [...]}), or TOML (answers = [...]).

    Each string holds directives, a line each. One step is used for each request, in order. Raises
    `NotUnderstood` with the file and the entry.
    """
    try:
        with path.open("rb") as file:
            octets = file.read(SCRIPT_MAX_BYTES + 1)
    except OSError as error:
        raise NotUnderstood(f"{path}: the script cannot be read: {error.strerror}") from None
    if len(octets) > SCRIPT_MAX_BYTES:
        raise NotUnderstood(f"{path}: the script is larger than {SCRIPT_MAX_BYTES} bytes")
    try:
        text = octets.decode("utf-8")
        written = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise NotUnderstood(f"{path}: not valid {kind}: {error}") from None
    entries = written.get("answers") if isinstance(written, dict) else written
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise NotUnderstood(f"{path}: expected a list of strings, or one under the key answers")
    directives = [
        (f"answer {number}", line)
        for number, entry in enumerate(entries, start=1)
        for line in entry.split("\n")
        if line.strip()
    ]
    try:
        return _steps(directives)
    except NotUnderstood as error:
        raise NotUnderstood(f"{path}: {error}") from None


def _steps(directives: Iterable[tuple[str, str]]) -> tuple[Step, ...]:
    steps: list[Step] = []
    pending: Step | None = None  # wait and pace shape the answer that follows them
    for where, line in directives:
        said = f"{where} {_quoted(line)}"
        words = line.strip(" \t")
        joined = words == "and" or words.startswith("and ")
        verb, _, rest = words.removeprefix("and").strip().partition(" ") if joined else words.partition(" ")
        if joined:
            if verb not in ("say", "echo", "report", "call"):
                raise NotUnderstood(f'{said}: only say, echo, report and call can follow "and"')
            if pending is not None or not steps or steps[-1].fault:
                raise NotUnderstood(f'{said}: "and" needs an answer in the line before it')
            steps[-1] = steps[-1]._replace(parts=(*steps[-1].parts, _part(said, verb, rest.strip())))
            continue
        if steps and steps[-1].times is None:
            raise NotUnderstood(f"{said} is never reached: {steps[-1].said} has no number of times")
        step = (pending or Step(said))._replace(said=said)
        pending = None
        if verb == "wait":
            pending = step._replace(wait_s=_seconds(said, rest, WAIT_MAX_S))
        elif verb == "pace":
            pending = step._replace(pace_s=_seconds(said, rest, PACE_MAX_S))
        elif verb in FAULTS:
            steps.append(_fault(said, step, FAULTS[verb], rest.split()))
        else:
            steps.append(step._replace(parts=(_part(said, verb, rest.strip()),)))
    if pending is not None:
        steps.append(pending._replace(parts=(Report(),)))
    return tuple(steps)


def _part(said: str, verb: str, rest: str) -> Say | Echo | Report | Call:
    if verb == "say":
        return Say(_text(said, rest))
    if verb == "call":
        return _call(said, rest)
    if verb in ("echo", "report"):
        if rest:
            raise NotUnderstood(f"{said}: {verb} takes nothing behind it")
        return Echo() if verb == "echo" else Report()
    raise NotUnderstood(f"{said}: unknown directive; there are {VERBS}")


def _text(said: str, rest: str) -> str:
    if not rest:
        raise NotUnderstood(f"{said}: say needs a text")
    if not rest.startswith('"'):
        return rest
    try:
        text = json.loads(rest)
    except ValueError as error:
        raise NotUnderstood(f"{said}: a text that starts with a quote must be a JSON string: {error}") from None
    if not isinstance(text, str) or not text:
        raise NotUnderstood(f"{said}: say needs a text")
    return text


def _call(said: str, rest: str) -> Call:
    name, _, written = rest.partition(" ")
    if not name or name.startswith("{") or len(name) > TOOL_NAME_MAX:
        raise NotUnderstood(f"{said}: call needs the name of a tool, then its arguments as a JSON object")
    try:
        arguments = json.loads(written) if written.strip() else {}
    except (ValueError, RecursionError) as error:
        raise NotUnderstood(f"{said}: the arguments are not valid JSON: {error}") from None
    if not isinstance(arguments, dict):
        raise NotUnderstood(f"{said}: the arguments must be a JSON object")
    return Call(name, arguments)


def _fault(said: str, step: Step, verb: Fault, words: list[str]) -> Step:
    status = 0
    if verb == "fail":
        if not words or not words[0].isdecimal() or not STATUS_MIN <= int(words[0][:9]) <= STATUS_MAX:
            raise NotUnderstood(f"{said}: fail needs a status from {STATUS_MIN} to {STATUS_MAX}")
        status, words = int(words[0]), words[1:]
    times: int | None = None
    if words:
        number = words[0][:9]
        if len(words) != 2 or words[1] not in ("time", "times") or not number.isdecimal():
            raise NotUnderstood(f"{said}: expected a number of times, such as: {verb}{' 500' * bool(status)} 2 times")
        times = int(number)
        if not 1 <= times <= TIMES_MAX:
            raise NotUnderstood(f"{said}: the number of times must be from 1 to {TIMES_MAX}")
    return step._replace(fault=verb, status=status, times=times)


def _seconds(said: str, rest: str, limit_s: float) -> float:
    try:
        seconds = float(rest)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= limit_s:  # also false for a NaN
        raise NotUnderstood(f"{said}: expected seconds from 0 to {limit_s:g}")
    return seconds


def _quoted(line: str) -> str:
    shown = line.strip(" \t")
    if len(shown) > QUOTE_MAX_CHARACTERS:
        shown = shown[:QUOTE_MAX_CHARACTERS] + "…"
    return json.dumps(shown, ensure_ascii=False)
