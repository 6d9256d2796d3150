"""`buzz chat`: a conversation of many turns in one session, whose program starts before the first message.

On a terminal a line that is typed while a turn runs is steered into it, and Ctrl-C stops the turn. In a pipe each line
is a turn, one after the other. Replies go to stdout, everything else to stderr; with --json, events go to stdout.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from buzz_host.cli.endings import EXIT_FAILED, EXIT_INTERRUPTED, Ending, Left
from buzz_host.cli.options import agent_option, harness_option, home_option, home_path, json_option, plugin_option

if TYPE_CHECKING:
    from buzz_host.cli.conversing import Conversing
    from buzz_host.cli.replies import Replies
    from buzz_host.services.conversation import Opener

PROMPT: Final = "> "
GOES_ON: Final = ". "
# At the end of a line: the message goes on in the next one.
CONTINUED: Final = "\\"


@click.command()
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
def chat(
    ctx: click.Context,
    agent: str | None,
    harness: str | None,
    plugins: tuple[str, ...],
    rehearse: bool,
    model_url: str | None,
    record: Path | None,
    resume: str | None,
    as_json: bool,
) -> None:
    """Many turns with an agent in one session: each line is a message.

    A line that is typed while a turn runs is steered into it. Ctrl-C interrupts the turn; a second one, or one at the
    prompt, leaves, as Ctrl-D and /quit do. A line that ends in a backslash goes on in the next. In a pipe, every line
    of standard input is a turn, and the exit code is 1 when one failed.
    """
    from buzz_host.cli.replies import EventLines, ReplyText
    from buzz_host.cli.summary import note_warnings
    from buzz_host.services.connect import HostGone, connect, from_here, here
    from buzz_host.services.preview_call import WarnOfTurn
    from buzz_host.services.session_calls import OpenSession

    typed = sys.stdin.isatty()
    asked = typed and sys.stderr.isatty() and not as_json
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
        start=True,
    )

    async def talk(opener: Opener) -> str:
        from buzz_host.cli.conversing import QUIT, Conversing
        from buzz_host.cli.input_lines import InputLines
        from buzz_host.cli.output import note
        from buzz_host.terminal import printable_line

        async with opener.open(opening) as conversation:
            if asked:
                whom = printable_line(f"{conversation.agent} on {conversation.harness}")
                note(f"{whom}; Ctrl-C interrupts a turn, Ctrl-D or {QUIT} leaves", dim=True)
            conversing = Conversing(conversation, replies, InputLines(), steers=typed, asked=asked)
            with conversing.signals():
                await _talked(conversing, prompts=asked)
            return conversation.id

    try:
        with connect(home_path(), plugins) as services:
            warnings = services.ask(WarnOfTurn(agent=agent, resume=resume))
            note_warnings(warnings)
            session = services.converse(talk)
    except HostGone as gone:
        raise Ending(EXIT_FAILED, str(gone)) from None
    except (KeyboardInterrupt, Left):
        replies.left()
        raise Ending(EXIT_INTERRUPTED) from None
    replies.finish_chat(session)
    if not typed and replies.status in ("failed", "interrupted"):
        ctx.exit(EXIT_INTERRUPTED if replies.status == "interrupted" else EXIT_FAILED)


async def _talked(conversing: Conversing, *, prompts: bool) -> None:
    """Turn after turn, until there is no further message."""
    from buzz_host.cli.conversing import QUIT

    while (message := await _message(conversing, prompts=prompts)) is not None:
        if message.strip() == QUIT:
            return
        if message.strip():
            await conversing.turn(message)


async def _message(conversing: Conversing, *, prompts: bool) -> str | None:
    """The next message, which may have several lines; None at the end."""
    lines: list[str] = []
    while True:
        if prompts:
            click.echo(GOES_ON if lines else PROMPT, err=True, nl=False)
        line = await conversing.line()
        if line is None:
            if prompts:
                click.echo(err=True)
            return "\n".join(lines) if lines and not conversing.leaves else None
        lines.append(line.removesuffix(CONTINUED))
        if not line.endswith(CONTINUED):
            return "\n".join(lines)
