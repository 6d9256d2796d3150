"""`buzz run`: one turn of an agent. The reply streams to stdout; everything beside it goes to stderr.

With --json, each event is one line of stdout. Ctrl-C interrupts the turn, which is recorded so; a program that does not
stop then is ended after a few seconds, and at once by a second Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from buzz_host.cli.endings import EXIT_FAILED, EXIT_INTERRUPTED, INTERRUPTING, Ending, Left
from buzz_host.cli.options import agent_option, home_option, home_path, json_option, plugin_option

if TYPE_CHECKING:
    from buzz_host.cli.replies import Replies
    from buzz_host.services.conversation import Opener
    from buzz_host.services.session_calls import OpenSession

STDERR: Final = 2
# In the place of a harness: each one that is here.
ALL: Final = "all"


@click.command()
@click.argument("text")
@agent_option
@click.option(
    "--harness",
    metavar="NAME",
    help="The program that runs the turn (else the agent's); all: each one that is here, side by side.",
)
@plugin_option
@click.option("--rehearse", is_flag=True, help="Answer by script instead of a model: no key, no network, no tokens.")
@click.option("--model-url", metavar="URL", help="An endpoint that speaks the harness's protocol, instead of its own.")
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Append each request that the rehearsal model received, as a JSON line (with --rehearse).",
)
@click.option("--resume", metavar="SESSION", help="Go on with an earlier session: its id, or the beginning of it.")
@json_option
@home_option
@click.pass_context
def run(
    ctx: click.Context,
    text: str,
    agent: str | None,
    harness: str | None,
    plugins: tuple[str, ...],
    rehearse: bool,
    model_url: str | None,
    record: Path | None,
    resume: str | None,
    as_json: bool,
) -> None:
    """One turn: sends TEXT to an agent (- reads it from standard input) and streams the reply.

    The exit code is 1 when the turn failed, 130 when it was interrupted.
    """
    from buzz_host.cli.messages import message_from
    from buzz_host.cli.replies import EventLines, ReplyText
    from buzz_host.cli.summary import note_warnings
    from buzz_host.services.connect import HostGone, connect, from_here, here
    from buzz_host.services.preview_call import WarnOfTurn
    from buzz_host.services.session_calls import OpenSession

    message = message_from(text)
    # Somebody sits there who can be asked.
    asked = not as_json and sys.stdin.isatty() and sys.stderr.isatty()
    replies: Replies = EventLines() if as_json else ReplyText()
    opening = OpenSession(
        here=here(),
        agent=agent,
        harness=harness,
        model_url=model_url,
        rehearse=rehearse,
        record=from_here(record) if record is not None else None,
        resume=resume,
        answers=asked,
    )
    if harness == ALL:
        from buzz_host.cli.run_all import run_all

        run_all(opening, message, plugins, as_json=as_json)
        return
    try:
        with connect(home_path(), plugins) as services:
            warnings = services.ask(WarnOfTurn(agent=agent, resume=resume))
            note_warnings(warnings)
            if asked:
                session = services.converse(lambda opener: _talked(opener, opening, message, replies))
            else:
                session = services.run(opening, message, replies.take, _stoppable)
    except HostGone as gone:
        raise Ending(EXIT_FAILED, str(gone)) from None
    except (KeyboardInterrupt, Left):
        replies.left()
        raise Ending(EXIT_INTERRUPTED) from None
    replies.finish(session)
    if replies.status != "completed":
        ctx.exit(EXIT_INTERRUPTED if replies.status == "interrupted" else EXIT_FAILED)


async def _talked(opener: Opener, opening: OpenSession, message: str, replies: Replies) -> str:
    """The turn in front of a person who is asked what the agent's policy asks."""
    from buzz_host.cli.conversing import Conversing
    from buzz_host.cli.input_lines import InputLines

    async with opener.open(opening) as conversation:
        conversing = Conversing(conversation, replies, InputLines(), steers=False, asked=True)
        with conversing.signals():
            await conversing.turn(message)
        return conversation.id


@contextmanager
def _stoppable(interrupt: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C interrupts the turn, the second leaves it, the third ends the process. SIGTERM and SIGHUP leave
    it, so that what runs is ended and recorded."""
    ways = iter((interrupt, leave))

    def pressed(number: int, frame: object) -> None:
        way = next(ways)
        if way is leave:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        else:
            with suppress(OSError):
                # Not through the stream, which may be in the middle of a write.
                os.write(STDERR, f"{INTERRUPTING}\n".encode())
        way()

    def told_to_end(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        leave()

    before: dict[signal.Signals, Any] = {}
    try:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, pressed)
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
                before[number] = signal.signal(number, told_to_end)
    except ValueError:  # not on the main thread: nobody's Ctrl-C arrives here
        yield
        return
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
