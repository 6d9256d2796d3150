"""One turn as a person reads it: labelled sections in the colours of their plugins, what was left out and why, tools,
steered messages, the reply. Drawn from what stands in the ledger, never from memory (AUD-01).
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from buzz_host.cli.drawing import Drawing, Palette
from buzz_host.cli.wording import (
    contribution,
    counted,
    cut,
    error_in_words,
    reason_in_words,
    shortened,
    usage_in_words,
)
from buzz_host.ledger.record import HANDED_OVER
from buzz_host.ledger.views import FaultView, HandedOverView, LeftOutView, SectionView, ToolView, TurnView
from buzz_host.terminal import printable_line

GONE = "(this text is gone from the ledger; its size and digest are kept)"
CHANGED = "(this text was changed since it was recorded: what stands there now is not shown)"
SHA256_SHOWN_CHARACTERS = 12
STATUS_STYLES = {"completed": "green", "folded": "green", "interrupted": "yellow", "failed": "red"}


def draw_turn(drawing: Drawing, turn: TurnView, palette: Palette) -> None:
    """Everything that was sent and came back, sections first."""
    draw_sent(drawing, turn, palette)
    for each in turn.tools:
        _tool(drawing, each, palette)
    for steer in turn.steers:
        _steer(drawing, steer, palette)
    for at in turn.compacted:
        drawing.lines(Text(f"the program replaced its history by a summary at {at}", "yellow"))
    draw_outcome(drawing, turn)


def draw_labels(drawing: Drawing, turn: TurnView) -> None:
    """Which turn it is, of whom, when, and how it ended."""
    row = turn.row
    labels = [
        ("turn", f"{row.turn}  {row.kind}" + (f", steered into {row.steers}" if row.steers else "")),
        ("agent", f"{row.agent}  on {row.harness}" + (f", model {turn.model}" if turn.model else "")),
        ("session", row.session),
        ("sent", row.at + (f"  ended {turn.ended_at}" if turn.ended_at else "")),
    ]
    if turn.message_ids:
        labels.append(("messages", ", ".join(turn.message_ids)))
    for label, value in labels:
        drawing.lines(Text.assemble((f"{label:<9}", "dim"), printable_line(value)))
    drawing.lines(Text.assemble(("status   ", "dim"), _status(row.status)))
    draw_changed(drawing, turn.changed)
    if turn.handed_over is not None:
        _handed_over(drawing, turn.handed_over, row.status)
    elif not turn.carries_sections:
        drawing.lines(
            Text(f"{row.harness} builds its own prompt: only the message was sent, not the sections below", "yellow")
        )
    elif turn.encoded:
        drawing.lines(Text(f"sent as {row.harness} must be handed it; the sections are what the model reads", "dim"))


def draw_changed(drawing: Drawing, lines: Sequence[str]) -> None:
    """What is not as it was recorded."""
    for line in lines:
        drawing.lines(Text(f"! {printable_line(line)}", "bold red"))


def lost_in_words(changed: bool) -> str:
    """What stands in the place of a text that is lost."""
    return CHANGED if changed else GONE


def _handed_over(drawing: Drawing, handed: HandedOverView, status: str) -> None:
    """What is known of a turn that went to a person's own program, and what is not."""
    how = (
        "from the last set on disk, since no host ran: recorded afterwards, from the note that the hook's client left"
        if handed.by == "client"
        else "by the running host"
    )
    entries = "1 entry" if len(handed.entries) == 1 else f"{len(handed.entries)} entries"
    drawing.lines(Text.assemble(("handed   ", "dim"), printable_line(f"in {entries}, {how}")))
    if handed.cwd is not None:
        drawing.lines(Text.assemble(("folder   ", "dim"), printable_line(handed.cwd)))
    if status == HANDED_OVER:
        drawing.lines(
            Text("whether the program used it, what the person wrote, and what came back are not known here", "yellow")
        )


def draw_sent(drawing: Drawing, turn: TurnView, palette: Palette) -> None:
    """The sections, what was left out, and the faults."""
    for each in turn.sections:
        _section(drawing, each, palette)
    draw_left_out(drawing, turn.left_out, palette)
    # A fault that is the reason of a row above needs no line of its own.
    told = {(each.plugin, each.detail) for each in turn.left_out}
    draw_faults(drawing, [each for each in turn.faults if (each.plugin, each.message) not in told], palette)


def draw_left_out(drawing: Drawing, rows: Sequence[LeftOutView], palette: Palette) -> None:
    """The instructions that the turn did not carry, each with its reason."""
    if rows:
        drawing.lines(Text("left out", "bold"))
    for each in rows:
        drawing.lines(
            Text.assemble(
                ("✗ ", "red"),
                (printable_line(contribution(each.plugin, each.id)), palette.of(each.plugin)),
                f"  {reason_in_words(each.reason, each.detail)}",
                f" {lost_in_words(each.changed)}" if each.detail is None else "",
            )
        )


def draw_faults(drawing: Drawing, faults: Sequence[FaultView], palette: Palette) -> None:
    """What plugins did wrong."""
    for each in faults:
        said = lost_in_words(each.changed) if each.message is None else cut(each.message)
        drawing.lines(
            Text.assemble(
                ("! fault ", "red"),
                (printable_line(each.plugin), palette.of(each.plugin)),
                f"  in {printable_line(each.phase)}: {said}",
            )
        )


def draw_outcome(drawing: Drawing, turn: TurnView) -> None:
    """The reply, the error of a failed turn, and the tokens."""
    if turn.reply:
        drawing.lines(Text("reply", "bold"))
        drawing.text(turn.reply, bar="white")
    elif turn.ended_at is not None and turn.reply is None:
        drawing.lines(Text.assemble(("reply  ", "bold"), (lost_in_words(turn.reply_changed), "dim")))
    if turn.error is not None:
        drawing.lines(Text.assemble(("error  ", "red"), error_in_words(turn.error)))
    if turn.usage is not None:
        drawing.lines(Text.assemble(("tokens  ", "dim"), usage_in_words(turn.usage)))


def _section(drawing: Drawing, section: SectionView, palette: Palette) -> None:
    style = palette.of(section.plugin)
    title = Text(section.tag, f"bold {style}" if section.plugin else "bold")
    if section.plugin is not None:
        title.append(f"  {printable_line(contribution(section.plugin, section.id))}", style)
    else:
        for name, value in section.attributes or ():
            title.append(printable_line(f"  {name}={value}"))
    title.append(f"  {counted(section.bytes, 'byte')}", "dim")
    if section.sha256 is not None and section.plugin is not None:
        title.append(f"  sha256 {section.sha256[:SHA256_SHOWN_CHARACTERS]}…", "dim")
    drawing.lines(title)
    if section.body is None:
        drawing.lines(Text(lost_in_words(section.changed), "dim"))
    else:
        drawing.text(section.body, bar=style if section.plugin else "dim")


def _tool(drawing: Drawing, tool: ToolView, palette: Palette) -> None:
    whose = f"plugin {tool.plugin}" if tool.plugin is not None else "the program's own"
    title = Text.assemble(
        (f"tool {printable_line(tool.name)}", f"bold {palette.of(tool.plugin)}" if tool.plugin else "bold"),
        (f"  {printable_line(whose)}", "dim"),
    )
    if tool.bytes is None:
        title.append("  no result was recorded", "yellow")
    elif tool.is_error:
        title.append("  error", "red")
    drawing.lines(title)
    drawing.text(lost_in_words(tool.changed) if tool.arguments is None else _arguments(tool), bar="dim")
    if tool.bytes is not None:
        drawing.lines(Text(f"returned {counted(tool.bytes, 'byte')}", "dim"))
        drawing.text(lost_in_words(tool.changed) if tool.result is None else tool.result, bar="dim")


def _arguments(tool: ToolView) -> str:
    from buzz_host.cli.output import json_line

    return json_line(tool.arguments or {}).rstrip("\n")


def _steer(drawing: Drawing, steer: TurnView, palette: Palette) -> None:
    outcome = {
        "folded": "folded into the running turn",
        "own-turn": "became a turn of its own",
        "returned": "came back unread and was sent again as the next turn",
        None: "how it went is not recorded",
    }.get(steer.outcome, steer.outcome or "")
    drawing.rule(f"steered while it ran: {shortened(steer.row.turn)}, {outcome}", "yellow")
    draw_changed(drawing, steer.changed)
    draw_turn(drawing, steer, palette)


def _status(status: str) -> Text:
    words = {
        "unended": "unended: it still runs, or its host was ended meanwhile",
        HANDED_OVER: "handed over to a program that the person runs",
    }.get(status, status)
    return Text(words, STATUS_STYLES.get(status, "yellow"))
