"""`buzz demo`: what Buzz does, on the real Claude Code, with the proof. It needs no key, no network and no home."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from buzz_host.cli.endings import EXIT_FAILED, Ending
from buzz_host.cli.options import json_option
from buzz_host.cli.output import note, print_json

if TYPE_CHECKING:
    from buzz_author.harness import Probe
    from buzz_host.services.demonstration import Audience, Stage
    from buzz_host.services.plugins import Switched
    from buzz_host.services.proof import Proof, TurnProof


@click.command()
@json_option
def demo(as_json: bool) -> None:
    """Two turns of the real Claude Code in one session, with three example plugins and no model behind it.

    Between the turns one plugin is switched off. Both transcripts are read back from disk, and so is the proof: the
    bytes that a model server in another process received, against the text in the ledger. Exit code 0 only if they are
    equal.
    """
    from buzz_host.services.demonstration import DemonstrationFailed, Stage, demonstrate
    from buzz_host.services.proof import prove

    with tempfile.TemporaryDirectory(prefix="buzz-demo-", ignore_cleanup_errors=True) as folder:
        stage = Stage.below(Path(folder))
        try:
            asyncio.run(demonstrate(stage, _json_audience(stage) if as_json else _people(stage)))
        except DemonstrationFailed as error:
            raise Ending(EXIT_FAILED, str(error)) from None
        proof = prove(stage.record, stage.home.database)
        if as_json:
            _print_proof(proof)
        else:
            _draw_proof(proof)
    if not proof.holds:
        raise Ending(EXIT_FAILED, "what was sent is NOT what the ledger says")


def _people(stage: Stage) -> Audience:
    from rich.text import Text

    from buzz_host.cli.drawing import RULE_COLUMNS, Drawing, Palette
    from buzz_host.cli.transcript import draw_outcome, draw_sent
    from buzz_host.cli.wording import counted
    from buzz_host.services.audit import Audit
    from buzz_host.services.demonstration import AGENT, PLUGINS, Audience
    from buzz_host.terminal import printable_line

    drawing, palette = Drawing(RULE_COLUMNS), Palette()
    for name in PLUGINS:
        palette.of(name)
    turns = 0

    def ready(probe: Probe) -> None:
        names = Text(", ").join(Text(name, palette.of(name)) for name in PLUGINS)
        drawing.lines(
            Text("Three plugins, two turns, one session of the real Claude Code, no model.", "bold"),
            Text.assemble(("plugins  ", "dim"), names),
            Text.assemble(("program  ", "dim"), f"Claude Code {printable_line(probe.version or '')}"),
            Text.assemble(("model    ", "dim"), "a rehearsal server on loopback, in a process of its own"),
            "",
        )
        note("starting Claude Code …", dim=True)

    def turn(identifier: str) -> None:
        nonlocal turns
        turns += 1
        found = Audit(stage.home).turn(identifier)
        size = counted(len((found.text or "").encode("utf-8")), "byte")
        drawing.rule(f"Turn {turns}: to agent {AGENT}, {size}, as it stands on disk")
        draw_sent(drawing, found, palette)
        draw_outcome(drawing, found)
        drawing.lines("")

    def switched(now: Switched) -> None:
        drawing.lines(
            Text.assemble(
                ("» ", "bold"),
                f"buzz plugin disable {now.plugin}: ",
                (now.plugin, palette.of(now.plugin)),
                f" is {'on' if now.enabled else 'off'}, the session goes on",
            ),
            "",
        )

    return Audience(ready, turn, switched)


def _json_audience(stage: Stage) -> Audience:
    from buzz_host.services.audit import Audit, turn_json
    from buzz_host.services.demonstration import Audience

    return Audience(
        ready=lambda probe: None,
        turn=lambda identifier: print_json(turn_json(Audit(stage.home).turn(identifier))),
        switched=lambda now: None,
    )


def _draw_proof(proof: Proof) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import RULE_COLUMNS, Drawing
    from buzz_host.cli.wording import counted
    from buzz_host.terminal import printable_line

    drawing = Drawing(RULE_COLUMNS)
    drawing.rule("Proof: what came off the socket, against the ledger")
    for number, each in enumerate(proof.turns, start=1):
        drawing.lines(_verdict(number, each))
        drawing.lines(
            Text.assemble(("  socket ", "dim"), f"{each.recorded_sha256} {len(each.recorded):>6,}"),
            Text.assemble(("  ledger ", "dim"), f"{each.kept_sha256} {len(each.kept):>6,}"),
        )
    for fault in proof.faults:
        drawing.lines(Text.assemble(("✗ ", "red"), printable_line(fault)))
    if not proof.turns:
        drawing.lines(Text("✗ the ledger has no turn", "red"))
    if not proof.faults:
        drawing.lines(Text.assemble(("✓ ", "green"), f"the ledger's chain is whole: {counted(proof.entries, 'link')}"))


def _verdict(number: int, each: TurnProof) -> Any:
    from rich.text import Text

    from buzz_host.terminal import printable_line

    if each.holds:
        return Text.assemble(
            ("✓ ", "green"), f"turn {number} is equal to the byte (request {each.request}; sha256, bytes)"
        )
    return Text.assemble(("✗ ", "red"), (f"turn {number} differs ", "red"), printable_line(each.difference))


def _print_proof(proof: Proof) -> None:
    for each in proof.turns:
        print_json(
            {
                "event": "proof",
                "turn": each.turn,
                "equal": each.holds,
                "difference": each.difference,
                "request": each.request,
                "recorded_bytes": len(each.recorded),
                "recorded_sha256": each.recorded_sha256,
                "ledger_bytes": len(each.kept),
                "ledger_sha256": each.kept_sha256,
            }
        )
    print_json({"event": "proved", "holds": proof.holds, "entries": proof.entries, "faults": list(proof.faults)})
