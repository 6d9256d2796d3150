"""What becomes of the events of a turn: JSON Lines for programs, or the reply on stdout with notes on stderr."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Protocol

import click

from buzz_author.events import TurnStatus
from buzz_host.cli.output import note, print_json
from buzz_host.cli.summary import note_turn
from buzz_host.cli.wording import asked_in_words, counted, cut, error_in_words, shortened
from buzz_host.sessions import events
from buzz_host.terminal import StreamPrinter, printable_line


class Replies(Protocol):
    """Takes the events of one command."""

    status: TurnStatus | None
    """How the command's own turn, and those that steering made of it, ended; the worst of them."""

    def take(self, event: events.Event) -> None: ...
    def left(self) -> None:
        """The turn was left before all was told of it."""
        ...

    def finish(self, session: str) -> None: ...
    def finish_chat(self, session: str) -> None: ...


class EventLines:
    """Each event as a line of JSON, as INTERFACES has them."""

    def __init__(self) -> None:
        self.status: TurnStatus | None = None
        self._begun: dict[str, tuple[events.Event, list[str]]] = {}
        """The turns that have not ended: how each began, and the reply so far."""

    def take(self, event: events.Event) -> None:
        """Print `event`."""
        self.status = _worse(self.status, event)
        self._follow(event)
        print_json(event.as_json())

    def left(self) -> None:
        """Say of each turn that it ended: whoever reads this waits for one end of each beginning."""
        for turn, (begun, said) in self._begun.items():
            ended = events.TurnCompleted(
                at=datetime.now(UTC),
                session=begun.session,
                turn=turn,
                status="interrupted",
                reply="".join(said),
                usage=None,
                error=None,
            )
            print_json(ended.as_json())
        self._begun.clear()

    def finish(self, session: str) -> None:
        """Nothing more: the events say all."""

    def finish_chat(self, session: str) -> None:
        """Nothing more here, too."""

    def _follow(self, event: events.Event) -> None:
        if event.turn is None:
            return
        if event.event == "turn_started":
            self._begun[event.turn] = event, []
        elif event.event == "text_delta" and event.turn in self._begun:
            self._begun[event.turn][1].append(str(event.as_json()["text"]))
        elif event.event == "turn_completed":
            self._begun.pop(event.turn, None)


class ReplyText:
    """The reply as it comes, safe for a terminal (SEC-04); everything else on stderr."""

    def __init__(self) -> None:
        self.status: TurnStatus | None = None
        self._turns: list[str] = []
        self._printer = StreamPrinter()
        self._at_line_start = True
        self._said = False

    def take(self, event: events.Event) -> None:
        """Show `event`, as far as a person wants to know of it."""
        self.status = _worse(self.status, event)
        match event:
            case events.TurnStarted():
                if event.turn is not None:
                    self._turns.append(event.turn)
                note_turn(event)
            case events.TextDelta():
                self._write(self._printer.feed(event.text))
            case events.ToolCall():
                whose = f" of {printable_line(event.plugin)}" if event.plugin is not None else ""
                self._beside(f"tool {printable_line(event.name)}{whose}")
            case events.ToolResult():
                how = "failed" if event.is_error else "returned"
                self._beside(f"tool {how}: {counted(event.bytes, 'byte')}")
            case events.Retrying():
                self._beside(f"asking the model again (attempt {event.attempt}): {error_in_words(event.error)}")
            case events.SteerSettled():
                self._beside(f"the message {shortened(event.steer)} that was steered: {event.outcome}")
            case events.PermissionRequested():
                self._beside(f"asks to use {asked_in_words(event)}")
            case events.QuestionAsked():
                self._beside("the program asks a question")
            case events.PermissionSettled():
                self._beside(f"{'allowed' if event.decision == 'allow' else 'denied'}: {cut(event.reason)}")
            case events.Compacted():
                self._beside("the program replaced its history by a summary")
            case events.TurnCompleted():
                self._completed(event)
            case events.SessionEnded():
                if event.error is not None:
                    self._beside(f"the program ended: {error_in_words(event.error)}")

    def left(self) -> None:
        """End the line that was begun."""
        self._end_line()

    def finish_chat(self, session: str) -> None:
        """Say how to go on with a conversation, if there was one."""
        if self._turns:
            note(f"session {session}  go on:  buzz chat --resume {shortened(session)}", dim=True)

    def finish(self, session: str) -> None:
        """Say how to go on, and where to look."""
        for turn in self._turns:
            note(f"turn    {turn}  see it: buzz audit show {shortened(turn)}", dim=True)
        note(f"session {session}  go on:  buzz run --resume {shortened(session)}", dim=True)

    def _completed(self, event: events.TurnCompleted) -> None:
        self._write(self._printer.finish())
        if not self._said and event.reply:
            # A program that tells its reply only at the end.
            whole = StreamPrinter()
            self._write(whole.feed(event.reply) + whole.finish())
        self._end_line()
        self._said = False
        if event.status == "interrupted":
            note("the turn was interrupted", fg="yellow")
        elif event.status == "failed":
            why = error_in_words(event.error) if event.error is not None else "the program gave no reason"
            again = "; trying again later may help" if event.error is not None and event.error.retryable else ""
            note(f"the turn failed: {why}{again}", fg="red")

    def _write(self, text: str) -> None:
        if text:
            self._said = True
            self._at_line_start = text.endswith("\n")
            click.echo(text, nl=False)
            sys.stdout.flush()

    def _beside(self, line: str) -> None:
        self._end_line()
        note(line, dim=True)

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._write("\n")


def _worse(status: TurnStatus | None, event: events.Event) -> TurnStatus | None:
    if not isinstance(event, events.TurnCompleted):
        return status
    order = (None, "completed", "interrupted", "failed")
    return max(status, event.status, key=order.index)
