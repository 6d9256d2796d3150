"""What the program asks before it goes on: may it use a tool of its own, and what does the person say (PRM-01).

Each request is one event and waits for `answer`. The program may withdraw it, as it does when it is interrupted; then
nobody's answer is needed any more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal

import attrs
from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny, ToolPermissionContext
from claude_agent_sdk.types import PermissionResult

from buzz_author.events import HarnessEvent, PermissionRequested, QuestionAsked
from buzz_author.harness import HarnessError, Policy
from harnesses.claude.tools import READING

ASKS_THE_PERSON: Final = "AskUserQuestion"


@attrs.frozen
class _Answer:
    decision: Literal["allow", "deny"]
    reason: str | None
    reply: str | None


class Requests:
    """The open requests of one session. `ours` are plugins' tools; `turn` is the one that runs; `emit` gets events."""

    def __init__(
        self,
        policy: Policy,
        ours: Collection[str],
        turn: Callable[[], str | None],
        emit: Callable[[HarnessEvent], None],
    ) -> None:
        self._policy = policy
        self._ours = frozenset(ours)
        self._turn = turn
        self._emit = emit
        self._open: dict[str, asyncio.Future[_Answer]] = {}
        self._asked = 0

    async def decide(self, tool: str, arguments: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        """Asked by the program before it uses a tool."""
        asks_the_person = tool == ASKS_THE_PERSON
        if tool in self._ours or (self._policy == "all" and not asks_the_person):
            return PermissionResultAllow()
        turn = self._turn()
        if turn is None:
            return PermissionResultDeny(message="nobody can be asked: no turn is running")
        self._asked += 1
        request = context.tool_use_id or f"request-{self._asked}"
        if request in self._open:  # a second question about the same call
            request = f"{request}-{self._asked}"
        event: HarnessEvent = PermissionRequested(turn, request, tool, arguments, read_only=tool in READING)
        if asks_the_person:
            event = QuestionAsked(turn, request, _questions(arguments))
        answered = self._open[request] = asyncio.get_running_loop().create_future()
        self._emit(event)
        try:
            answer = await answered
        finally:
            self._open.pop(request, None)
        if answer.decision == "deny":
            return PermissionResultDeny(message=answer.reason or "it was denied")
        if not asks_the_person:
            return PermissionResultAllow()
        if answer.reply is None:
            return PermissionResultDeny(message=answer.reason or "the person gave no answer")
        return PermissionResultAllow(updated_input={**arguments, "answers": _answers(arguments, answer.reply)})

    def answer(self, request: str, decision: Literal["allow", "deny"], reason: str | None, reply: str | None) -> None:
        """Answer an open request. Raises `HarnessError` for one that is not, or not any more."""
        waiting = self._open.get(request)
        if waiting is None or waiting.done():
            raise HarnessError("invalid-request", f"Claude Code waits for no answer under the id {request!r}")
        waiting.set_result(_Answer(decision, reason, reply))


def _questions(arguments: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    asked = arguments.get("questions")
    return tuple(each for each in asked if isinstance(each, dict)) if isinstance(asked, list) else ()


def _answers(arguments: Mapping[str, Any], reply: str) -> dict[str, str]:
    """The answer to each question: `reply` is a JSON object of them, or one answer for all."""
    questions = [str(each.get("question", "")) for each in _questions(arguments)]
    try:
        given = json.loads(reply)
    except ValueError:
        given = None
    if isinstance(given, dict):
        return {each: str(given[each]) for each in questions if each in given}
    return dict.fromkeys(questions, reply)
