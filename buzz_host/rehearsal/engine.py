"""What the rehearsed model does with a request: the script's next step, or the default answer.

Where a turn's script stands is read from the request itself (the ids of our tool calls carry their step), so it
survives retries, parallel sessions and a restart. The only state is how often a counted fault was given, and how
far the script file was used.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from buzz_host.rehearsal.neutral import Answer, Asked, Called, NotUnderstood, Said, ToolReturn, estimated_tokens
from buzz_host.rehearsal.script import Call, Echo, Report, Say, Step, opens_event, steps_of_text

CALL_ID_MARK = "rehearsal_"
COUNTED_FAULTS_MAX = 10_000
DEFAULT = Step("the default answer", (Report(),))
CUT_TEXT = "rehearsal: the script drops this answer in its middle, so what stands here is never read to its end."


class Plan(NamedTuple):
    """What to do with one request. `answer` is set unless the fault is `fail` or `hang`."""

    answer: Answer | None
    wait_s: float
    pace_s: float
    fault: str | None
    status: int
    message: str


class Engine:
    """The rehearsed model; one for a server, used from all its threads."""

    def __init__(self, script: tuple[Step, ...] | None = None) -> None:
        """`script`: the steps of a script file, which then answer instead of the directives in messages."""
        self._script = script
        self._used = 0
        self._given: OrderedDict[tuple[str, str, str, int], int] = OrderedDict()
        self._lock = threading.Lock()

    def plan(self, asked: Asked) -> Plan:
        """What to do with this request; raises `NotUnderstood` for a malformed or used-up script."""
        return _plan(asked, *(self._step_of_text(asked) if self._script is None else self._step_of_file()))

    def _step_of_file(self) -> tuple[int, Step]:
        assert self._script is not None
        with self._lock:
            self._used += 1
            left = self._used
            for index, step in enumerate(self._script):
                if step.times is None or left <= step.times:
                    return index, step
                left -= step.times
            total = self._used - left
        raise NotUnderstood(f"the script file is used up: it answers {total} requests, this is one more")

    def _step_of_text(self, asked: Asked) -> tuple[int, Step]:
        steps = steps_of_text(asked.newest.text)
        index = _position(asked.returns, len(steps))
        while index < len(steps):
            step = steps[index]
            if step.fault is None or step.times is None or self._count(asked, index) <= step.times:
                return index, step
            index += 1
        return index, DEFAULT

    def _count(self, asked: Asked, index: int) -> int:
        """How often this fault of this turn has come up, this time included."""
        key = (asked.session, asked.newest.place, asked.newest.text, index)
        with self._lock:
            count = self._given.pop(key, 0) + 1
            self._given[key] = count
            if len(self._given) > COUNTED_FAULTS_MAX:
                self._given.popitem(last=False)
        return count


def _position(returns: tuple[ToolReturn, ...], end: int) -> int:
    """The step that is next: behind the latest one whose tool calls came back; the end for calls not of ours."""
    if not returns:
        return 0
    steps = [_step_of_call(returned.call_id) for returned in returns]
    known = [step for step in steps if step is not None]
    return max(known) + 1 if known else end


def _step_of_call(call_id: str) -> int | None:
    # In front of the mark stands what the protocol begins its ids with, behind the step a random part.
    _, mark, behind = call_id.partition(CALL_ID_MARK)
    written = behind.split("_")[0]
    return int(written) if mark and written.isdecimal() else None


def _plan(asked: Asked, index: int, step: Step) -> Plan:
    if step.fault in ("fail", "hang"):
        message = f"rehearsal: the script asked for status {step.status}"
        return Plan(None, step.wait_s, 0.0, step.fault, step.status, message)
    if step.fault == "drop":
        parts: tuple[Said | Called, ...] = (Said(CUT_TEXT),)
    else:
        parts = tuple(_part(asked, index, part) for part in step.parts)
    octets = sum(len(str(part).encode("utf-8", "replace")) for part in parts)
    answer = Answer(
        secrets.token_hex(12), asked.model, parts, asked.input_tokens, estimated_tokens(octets), asked.counted
    )
    return Plan(answer, step.wait_s, step.pace_s, step.fault, 200, "")


def _part(asked: Asked, index: int, part: Say | Echo | Report | Call) -> Said | Called:
    if isinstance(part, Call):
        namespace, name = asked.namespaced.get(part.name, ("", part.name))
        text = _freeform(part.arguments) if part.name in asked.freeform else None
        return Called(f"{CALL_ID_MARK}{index}_{secrets.token_hex(8)}", name, part.arguments, namespace, text)
    if isinstance(part, Echo):
        return Said(asked.newest.text or "rehearsal: the request holds no text of a user.")
    if isinstance(part, Say):
        return Said(part.text)
    return Said(_told(asked.returns) if asked.returns else _reported(asked.newest.text))


def _freeform(arguments: Mapping[str, object]) -> str:
    """What a tool that takes a text gets: `input` where the script gives nothing else, or else all of it as JSON."""
    text = arguments.get("input")
    return text if isinstance(text, str) and len(arguments) == 1 else json.dumps(arguments, ensure_ascii=False)


def _told(returns: tuple[ToolReturn, ...]) -> str:
    """What the tools of the newest answer gave back, word for word, and which messages came with it."""
    latest = _step_of_call(returns[-1].call_id)
    shown = [returned for returned in returns if _step_of_call(returned.call_id) == latest]
    lines = [
        f"rehearsal: {returned.name or 'a tool'} {'failed' if returned.is_error else 'returned'}: {returned.text}"
        for returned in shown
    ]
    arrived = (notice for returned in shown for notice in returned.notices if any(map(opens_event, notice.split("\n"))))
    return "\n".join([*lines, *(f"rehearsal: a message arrived meanwhile. {_sections(notice)}" for notice in arrived)])


def _reported(text: str) -> str:
    """The default answer: that no model was called, and which sections the text holds, by plugin."""
    return f"rehearsal: no model was called. {_sections(text)}"


def _sections(text: str) -> str:
    from buzz_author.sections import parse  # here and not above: it costs more than the rest of the server

    size = len(text.encode("utf-8", "surrogatepass"))
    try:
        sections = parse(text)
    except Exception as error:  # the code under test must not silence its own witness
        return f"The sections could not be parsed: {type(error).__name__}: {error}. {size} bytes received."
    if not sections:
        return f"No sections in the {size} bytes received."
    shown = []
    for section in sections:
        attributes = "".join(f" {name}={value}" for name, value in section.attributes)
        shown.append(f"{section.tag}{attributes} ({len(section.body.encode('utf-8', 'surrogatepass'))} bytes)")
    return f"Sections received: {'; '.join(shown)}."
