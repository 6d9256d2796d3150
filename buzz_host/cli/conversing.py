"""A turn of a conversation in front of a person: what they type meanwhile, what they are asked, how they stop it.

Shared by `buzz chat`, where a line that is typed while a turn runs is steered into it, and by `buzz run` on a terminal,
where lines are read only as answers. Everything that is asked is made safe for the terminal, and only a plain yes
allows (SEC-04, PRM-01).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from buzz_author.errors import BuzzError
from buzz_host.cli.endings import INTERRUPTING, Left
from buzz_host.cli.input_lines import InputLines
from buzz_host.cli.output import note
from buzz_host.cli.wording import asked_in_words, cut
from buzz_host.services.connect import HostGone
from buzz_host.sessions import events
from buzz_host.terminal import printable_line

if TYPE_CHECKING:
    from buzz_host.cli.replies import Replies
    from buzz_host.services.conversation import Conversation

QUIT: Final = "/quit"
YES: Final = frozenset({"y", "yes"})
NO: Final = frozenset({"", "n", "no"})


class Conversing:
    """One person in a conversation. `steers`: whether a line that answers nothing is for the turn that runs;
    `asked`: whether there is somebody to answer what is asked."""

    def __init__(
        self, conversation: Conversation, replies: Replies, lines: InputLines, *, steers: bool, asked: bool
    ) -> None:
        self._conversation = conversation
        self._replies = replies
        self._lines = lines
        self._steers = steers
        self._asked = asked
        self._questions: deque[Question] = deque()
        self._leaving = asyncio.Event()
        self._running = False
        self._interrupted = False
        self._work: set[asyncio.Task[None]] = set()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """As long as it lasts, Ctrl-C interrupts the turn that runs; a second one, or one between turns, leaves, as
        SIGTERM and SIGHUP do. After that they end the process."""
        loop = asyncio.get_running_loop()
        before: dict[signal.Signals, Any] = {}
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:  # as under nohup
                continue
            before[number] = signal.getsignal(number)
            loop.add_signal_handler(number, self._pressed if number is signal.SIGINT else self._told_to_end, number)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    @property
    def leaves(self) -> bool:
        """Whether the person left."""
        return self._leaving.is_set()

    async def line(self) -> str | None:
        """The next line, between turns; None at the end of input, or when the person leaves."""
        reading = asyncio.ensure_future(self._lines.next())
        leaving = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait({reading, leaving}, return_when=asyncio.FIRST_COMPLETED)
            return reading.result() if reading.done() and not self.leaves else None
        finally:
            reading.cancel()
            leaving.cancel()

    async def turn(self, message: str) -> None:
        """One turn, to its end; everything is shown. Raises `Left` when the person does not wait for it."""
        self._interrupted = False
        stream: AsyncIterator[events.Event] | None = None
        try:
            async with self._conversation.turn(message) as stream:
                self._running = True
                await self._followed(stream)
        except Left:
            if stream is not None:  # it is at rest now: how it ended is told all the same
                with contextlib.suppress(BuzzError):
                    async for event in stream:
                        self._replies.take(event)
            raise
        finally:
            self._running = False
            self._questions.clear()

    async def _followed(self, stream: AsyncIterator[events.Event]) -> None:
        """Show the events of `stream`, and take what is typed meanwhile."""
        telling = asyncio.ensure_future(_next(stream))
        leaving = asyncio.ensure_future(self._leaving.wait())
        reading: asyncio.Future[str | None] | None = None
        try:
            while True:
                if reading is None and (self._steers or self._questions):
                    reading = asyncio.ensure_future(self._lines.next())
                waiting = {telling, leaving, *({reading} if reading is not None else ())}
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if telling.done():
                    event = telling.result()
                    if event is None:
                        return
                    self._shown(event)
                    telling = asyncio.ensure_future(_next(stream))
                elif self.leaves:
                    raise Left
                elif reading is not None and reading.done():
                    line, reading = reading.result(), None
                    if line is None and self._steers:
                        raise Left
                    await self._typed(line or "")
        finally:
            for each in (telling, leaving, reading):
                if each is not None:
                    each.cancel()

    # What is asked.

    def _shown(self, event: events.Event) -> None:
        self._replies.take(event)
        first = self._questions[0] if self._questions else None
        match event:
            case events.PermissionRequested() | events.QuestionAsked() if self._asked:
                self._questions.append(Question(event))
            case events.PermissionSettled():
                self._questions = deque(each for each in self._questions if each.request != event.request)
            case events.TextDelta():
                return  # in the middle of a line
        if self._questions:
            # Whatever was shown stands between the question and its answer now: it is put again.
            self._put(again=first is not None)

    def _put(self, *, again: bool) -> None:
        """Put the first open question to the person; `again` repeats what it is about."""
        if not self._steers and not again:
            self._lines.forget_typed()
        for line in self._questions[0].lines(again=again):
            note(line, fg="yellow")
        click.secho(self._questions[0].prompt, err=True, nl=False, fg="yellow")

    async def _typed(self, line: str) -> None:
        if self._questions:
            question = self._questions[0]
            taken = question.take(line, others_pass=self._steers)
            if taken is None:  # it is no answer
                await self._steered(line)
            elif taken:
                self._questions.popleft()
                await self._quietly(question.answer(self._conversation))
                if self._questions:
                    self._put(again=True)
            else:  # the next one of several questions
                self._put(again=False)
        elif self._steers:
            await self._steered(line)

    async def _steered(self, line: str) -> None:
        if line.strip() == QUIT:
            raise Left
        if line.strip():  # its own turn_started, when that is told, puts an open question again
            await self._quietly(self._conversation.steer(line))

    async def _quietly(self, call: Any) -> None:
        """What a person asked for in the middle of a turn may come too late; the turn goes on."""
        try:
            await call
        except HostGone:
            raise
        except BuzzError as error:
            note(cut(str(error)), fg="red")

    # How it is stopped.

    def _pressed(self, number: signal.Signals) -> None:
        if not self._running or self._interrupted:
            self._told_to_end(number)
            return
        self._interrupted = True
        note(INTERRUPTING, dim=True)
        task = asyncio.get_running_loop().create_task(self._quietly(self._conversation.interrupt()))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def _told_to_end(self, number: signal.Signals) -> None:
        self._leaving.set()
        # Whoever does not wait for this either: the next one ends the process.
        asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


class Question:
    """One request in front of a person: what is shown, and what their lines mean."""

    def __init__(self, event: events.PermissionRequested | events.QuestionAsked) -> None:
        self.request = event.request
        self._event = event
        self._asked = event.questions if isinstance(event, events.QuestionAsked) else None
        self._replies: list[str] = []
        self._allows = False

    @property
    def prompt(self) -> str:
        """What stands before the answer."""
        return "allow? [y/N] " if self._asked is None else "answer (empty: none): "

    def lines(self, *, again: bool) -> Iterator[str]:
        """What is shown before the prompt. What a tool is called with was shown with its event, the first time."""
        if again and isinstance(self._event, events.PermissionRequested):
            yield f"asks to use {asked_in_words(self._event)}"
        if self._asked:
            current = self._asked[len(self._replies)]
            yield cut(f"? {current.get('question', '')}")
            options = current.get("options")
            for option in options if isinstance(options, list | tuple) else ():
                label = option.get("label", "") if isinstance(option, Mapping) else option
                yield printable_line(f"  - {label}")

    def take(self, line: str, *, others_pass: bool) -> bool | None:
        """True when the answer is complete, False when there is more to ask; None for a line that is no answer, where
        `others_pass`; else it is a no."""
        word = line.strip().lower()
        if self._asked is None:
            if others_pass and word not in YES | NO:
                return None
            self._allows = word in YES
            return True
        if not word:
            self._allows = False
            return True
        self._replies.append(line.strip())
        self._allows = True
        return len(self._replies) >= len(self._asked)

    async def answer(self, conversation: Conversation) -> None:
        """Hand the answer over."""
        reply = None
        if self._asked is not None and self._allows:
            texts = [str(each.get("question", "")) for each in self._asked]
            several = len(self._replies) > 1
            reply = json.dumps(dict(zip(texts, self._replies, strict=False))) if several else self._replies[0]
        await conversation.answer(self.request, "allow" if self._allows else "deny", reply=reply)


async def _next(stream: AsyncIterator[events.Event]) -> events.Event | None:
    """The next event; None at the end of the stream."""
    return await anext(stream, None)
