"""`buzz run`: one turn of an agent. The reply streams to stdout; everything beside it goes to stderr.

With --json, each event is one line of stdout. Ctrl-C interrupts the turn, which is recorded so; a second one leaves.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from buzz_host.cli.endings import EXIT_FAILED, EXIT_INTERRUPTED, Ending
from buzz_host.cli.options import agent_option, harness_option, home_option, home_path, json_option, plugin_option

if TYPE_CHECKING:
    from buzz_host.cli.replies import Replies
    from buzz_host.sessions.session import Session


@click.command()
@click.argument("text")
@agent_option
@harness_option
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

    message = message_from(text)
    replies: Replies = EventLines() if as_json else ReplyText()

    async def turn() -> None:
        from buzz_host.services.host import Host

        async with (
            Host(home_path(), plugins=plugins) as host,
            host.session(
                agent=agent, harness=harness, model_url=model_url, rehearse=rehearse, record=record, resume=resume
            ) as session,
        ):
            with _interruptible(session):
                async with session.turn(message) as events:
                    async for event in events:
                        replies.take(event)
        replies.finish(session.id)

    try:
        asyncio.run(turn())
    except asyncio.CancelledError:
        raise Ending(EXIT_INTERRUPTED) from None
    if replies.status != "completed":
        ctx.exit(EXIT_INTERRUPTED if replies.status == "interrupted" else EXIT_FAILED)


@contextmanager
def _interruptible(session: Session) -> Iterator[None]:
    """The first Ctrl-C interrupts the turn, the second cancels the command, the third ends the process."""
    loop = asyncio.get_running_loop()
    command = asyncio.current_task()
    interrupting: list[asyncio.Task[None]] = []

    def pressed() -> None:
        if not interrupting:
            interrupting.append(loop.create_task(session.interrupt()))
            return
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if command is not None:
            command.cancel()

    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, pressed)
    except RuntimeError:  # not on the main thread: nobody's Ctrl-C arrives here
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)
