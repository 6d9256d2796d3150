"""One conversation, run in this process: the model is asked, its calls are made, until it has said what it has to say.

A steered message joins before the next request, or is one more request where the model had nothing to call; what has
not joined when a turn is interrupted or fails is given back. The stream keeps its laws: each turn ends once, each steer
is settled once, `SessionEnded` comes last.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, Literal

import attrs

from buzz_author.events import (
    Compacted,
    HarnessEvent,
    Retrying,
    SessionEnded,
    SteerSettled,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnStarted,
    TurnStatus,
    Usage,
)
from buzz_author.harness import HarnessError, SessionHost, SessionSpec
from buzz_author.tools import Image, Resource, Text, ToolResult
from buzz_author.turns import Turn
from harnesses.direct import faults, trimming
from harnesses.direct.endpoint import Endpoint
from harnesses.direct.protocols import Finished, Piece, Request, arguments_of
from harnesses.direct.settings import DirectSettings
from harnesses.direct.transcript import Called, Item, Returned, Said, Transcript
from harnesses.stdio.faults import refused

TEXT_SEPARATOR: Final = "\n\n"
RETRY_PAUSES_S: Final = (0.3, 1.5)
# A model that calls without end would never let its turn end.
CALLS_MAX: Final = 100
_ENDED: Final = "this session has ended"


@attrs.define
class _Running:
    """The turn that runs."""

    turn: str
    texts: list[str] = attrs.field(factory=list)
    partial: dict[int, str] = attrs.field(factory=dict)
    """The texts of the answer that is coming, by part."""
    calls: int = 0
    attempts: int = 0
    usage: Usage | None = None


class DirectSession:
    """A conversation with an endpoint."""

    def __init__(
        self,
        spec: SessionSpec,
        host: SessionHost,
        endpoint: Endpoint,
        transcript: Transcript,
        identifier: str,
        settings: DirectSettings,
        log: logging.Logger,
    ) -> None:
        self._spec = spec
        self._host = host
        self._endpoint = endpoint
        self._transcript = transcript
        self._identifier = identifier
        self._settings = settings
        self._log = log
        self._model = spec.model or settings.model
        self._events: asyncio.Queue[HarnessEvent] = asyncio.Queue()
        self._running: _Running | None = None
        self._task: asyncio.Task[None] | None = None
        self._steers: dict[str, tuple[str, Turn]] = {}
        """Unsettled steers: the turn that each was meant for, and what it says."""
        self._over = False

    @property
    def native_id(self) -> str | None:
        """The id of the conversation; None before anything was said in it."""
        return self._identifier if self._transcript.items else None

    async def send(self, turn: Turn) -> None:
        """Start a turn. Raises `HarnessError` when the session is over, or the conversation cannot be written."""
        if self._over:
            raise HarnessError("process-died", _ENDED, retryable=True)
        try:
            self._transcript.add(Said("user", turn.text))
        except OSError as error:
            raise faults.of_exception(error) from error
        self._running = _Running(turn.id)
        self._emit(TurnStarted(turn.id))
        self._task = asyncio.create_task(self._run(self._running), name=f"turn {turn.id}")

    async def steer(self, turn: Turn) -> None:
        """Let a message join the running turn; without one it is given back."""
        if self._over:
            raise HarnessError("process-died", _ENDED, retryable=True)
        into = turn.steers or turn.id
        if self._running is None:
            self._emit(SteerSettled(into, turn.id, "returned"))
        else:
            self._steers[turn.id] = (into, turn)

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends as `interrupted`; without one, nothing happens."""
        if self._task is not None and self._running is not None:
            self._task.cancel()

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        """Raises `HarnessError`: there are no tools but plugins', for which the host asks."""
        raise refused(f"nothing was asked under the id {request_id!r}")

    async def events(self) -> AsyncIterator[HarnessEvent]:
        """Everything that happens, in order, until `SessionEnded`. For one reader."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionEnded):
                return

    async def close(self, *, deadline_s: float) -> None:
        """End the session; a turn that runs ends as `interrupted`."""
        if self._over:
            return
        self._over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=max(deadline_s, 0.1))
        self._end_turn("interrupted")
        await self._endpoint.close()
        self._emit(SessionEnded())

    # One turn.

    def _emit(self, event: HarnessEvent) -> None:
        self._events.put_nowait(event)

    async def _run(self, running: _Running) -> None:
        try:
            while True:
                self._fold_steers(running)
                calls = await self._asked(running)
                if calls:
                    await self._make(running, calls)
                elif not self._steers:
                    break
        except asyncio.CancelledError:
            self._keep_partial(running)
            self._end_turn("interrupted")
        except Exception as error:
            self._end_turn("failed", faults.of_exception(error))
        else:
            self._end_turn("completed")

    def _fold_steers(self, running: _Running) -> None:
        for steer, (_, turn) in list(self._steers.items()):
            self._transcript.add(Said("user", turn.text))
            del self._steers[steer]
            self._emit(SteerSettled(running.turn, steer, "folded"))

    async def _asked(self, running: _Running) -> tuple[Called, ...]:
        """One answer of the model, asked again where that may help; the calls that it wants to be made."""
        if self._model is None:
            self._model = await self._endpoint.first_model()
        self._make_room(running, self._settings.context_tokens)
        retries = iter(RETRY_PAUSES_S)
        while True:
            try:
                finished = await self._answer(running)
            except Exception as error:
                fault = faults.of_exception(error)
                if faults.too_long(error) and self._make_room(running, self._size() / 2):
                    continue
                pause = next(retries, None)
                if not fault.retryable or pause is None:
                    raise
                running.attempts += 1
                self._emit(Retrying(running.turn, running.attempts, fault))
                running.partial.clear()
                await asyncio.sleep(pause)
                continue
            texts = [text for _, text in sorted(running.partial.items()) if text]
            running.texts += texts
            running.partial.clear()
            said: list[Item] = [Said("assistant", text) for text in texts]
            self._transcript.add(*said, *finished.calls)
            running.usage = _sum(running.usage, finished.usage)
            return finished.calls

    async def _answer(self, running: _Running) -> Finished:
        assert self._model is not None
        request = Request(
            self._model, self._spec.system_prompt, self._transcript.current, self._spec.tools, self._spec.effort
        )
        protocols = self._endpoint.protocols
        for protocol in protocols:
            try:
                async for piece in protocol(self._endpoint.client, request):
                    if isinstance(piece, Finished):
                        self._endpoint.answered(protocol)
                        return piece
                    self._say(running, piece)
            except Exception as error:
                if protocol is protocols[-1] or not faults.not_there(error):
                    raise
        raise AssertionError("a protocol ends with `Finished`, or raises")

    def _say(self, running: _Running, piece: Piece) -> None:
        if piece.part not in running.partial:
            if running.texts or any(running.partial.values()):
                self._emit(TextDelta(running.turn, TEXT_SEPARATOR))
            running.partial[piece.part] = ""
        running.partial[piece.part] += piece.text
        self._emit(TextDelta(running.turn, piece.text))

    async def _make(self, running: _Running, calls: Sequence[Called]) -> None:
        """Make the calls of one answer, all at the same time; what is not back when the turn is stopped is told so."""
        running.calls += len(calls)
        if running.calls > CALLS_MAX:
            self._transcript.add(*(Returned(each.call, "not called") for each in calls))
            raise refused(f"the model made more than {CALLS_MAX} calls in one turn")
        made = [asyncio.create_task(self._call(running, each)) for each in calls]
        try:
            returned = await asyncio.gather(*made)
        except asyncio.CancelledError:
            for each in made:
                each.cancel()
            await asyncio.wait(made)
            results = [None if each.cancelled() or each.exception() else each.result() for each in made]
            self._transcript.add(
                *(back or Returned(call.call, "interrupted") for call, back in zip(calls, results, strict=True))
            )
            raise
        self._transcript.add(*returned)

    async def _call(self, running: _Running, called: Called) -> Returned:
        arguments = arguments_of(called)
        self._emit(ToolCalled(running.turn, called.call, called.name, arguments or {}))
        try:
            if arguments is None:
                written = Text(f"the arguments are no JSON object: {called.arguments[:200]}")
                result = ToolResult((written,), is_error=True)
            else:
                result = await self._host.call_tool(called.call, called.name, arguments)
        except asyncio.CancelledError:
            self._emit(ToolReturned(running.turn, called.call, is_error=True, text="the call was interrupted"))
            raise
        text, images = _written(result)
        self._emit(ToolReturned(running.turn, called.call, result.is_error, text))
        return Returned(called.call, text, images)

    def _size(self) -> int:
        return trimming.tokens(self._transcript.current, len(self._spec.system_prompt))

    def _make_room(self, running: _Running, limit: float) -> bool:
        """Leave out the oldest turns where the conversation is longer than `limit` tokens; whether any were."""
        if self._size() <= limit:
            return False
        aimed = limit * trimming.TRIMMED_TO
        count = trimming.cut(self._transcript.current, aimed, len(self._spec.system_prompt))
        if count == 0:
            return False
        self._transcript.trim(self._transcript.first + count)
        self._emit(Compacted(running.turn))
        return True

    def _keep_partial(self, running: _Running) -> None:
        texts = [text for _, text in sorted(running.partial.items()) if text]
        running.texts += texts
        try:
            if texts:
                self._transcript.add(*(Said("assistant", text) for text in texts))
        except OSError as error:
            self._log.warning("what the model had said cannot be kept: %s", error)

    def _end_turn(self, status: TurnStatus, error: HarnessError | None = None) -> None:
        running, self._running = self._running, None
        for steer, (into, _) in list(self._steers.items()):
            del self._steers[steer]
            self._emit(SteerSettled(into, steer, "returned"))
        if running is not None:
            reply = "" if status == "failed" else TEXT_SEPARATOR.join(running.texts)
            self._emit(TurnEnded(running.turn, status, reply, running.usage, error))


def _written(result: ToolResult) -> tuple[str, tuple[str, ...]]:
    """A result as text and images."""
    texts, images = [], []
    for each in result.content:
        match each:
            case Text(text):
                texts.append(text)
            case Image(octets, media_type):
                images.append(f"data:{media_type};base64,{base64.b64encode(octets).decode('ascii')}")
            case Resource(uri, text):
                texts.append(f"{uri}\n{text}" if text else uri)
    return "\n".join(texts), tuple(images)


def _sum(before: Usage | None, more: Usage | None) -> Usage | None:
    if before is None or more is None:
        return before or more
    pairs = zip(attrs.astuple(before), attrs.astuple(more), strict=True)
    return Usage(*(None if a is None and b is None else (a or 0) + (b or 0) for a, b in pairs))
