"""`buzz demo`: what Buzz does, on the real programs that are here, with the proof. It needs no key and no network."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from buzz_author.errors import BuzzError
from buzz_host.cli.endings import EXIT_FAILED, Ending
from buzz_host.cli.options import json_option
from buzz_host.cli.output import note, print_json

if TYPE_CHECKING:
    from buzz_host.services.demonstration import Audience, Stage
    from buzz_host.services.harnesses import HarnessView
    from buzz_host.services.plugins import Switched
    from buzz_host.services.proof import Proof, TurnProof


@click.command()
@json_option
def demo(as_json: bool) -> None:
    """Two turns in each harness that is here, with three example plugins and no model behind it.

    Between the turns one plugin is switched off. All transcripts are read back from disk, and so is the proof: the
    bytes that a model server in another process received, against the text in the ledger. Exit code 0 only if they are
    equal in every harness. A harness whose program is not here is named, with what to do about it.
    """
    from buzz_host.services.demonstration import Stage, cast, demonstrate
    from buzz_host.services.proof import prove

    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="buzz-demo-", ignore_cleanup_errors=True) as folder:
        views = asyncio.run(cast(Path(folder) / "cast"))
        _tell_missing([each for each in views if each.probe.fault is not None], as_json=as_json)
        here = [each for each in views if each.probe.fault is None]
        if not as_json:
            _introduce(here)
        for view in here:
            stage = Stage.below(Path(folder) / view.id, view.id)
            try:
                asyncio.run(demonstrate(stage, _json_audience(stage) if as_json else _people(stage, view)))
            except BuzzError as error:
                failed.append(f"{view.title}: {error}")
                continue
            proof = prove(stage.record, stage.home.database)
            if as_json:
                _print_proof(view.id, proof)
            else:
                _draw_proof(proof, view)
            if not proof.holds:
                failed.append(f"{view.title}: what was sent is NOT what the ledger says")
    if failed:
        raise Ending(EXIT_FAILED, "; ".join(failed))


def _tell_missing(missing: list[HarnessView], *, as_json: bool) -> None:
    """Name the harnesses whose programs are not here."""
    from buzz_host.cli.wording import cut

    for view in missing:
        if as_json:
            print_json({"event": "missing", "harness": view.id, "fault": view.probe.fault})
        else:
            note(f"{cut(view.title)} is not shown: {cut(view.probe.fault or '')}", dim=True)


def _introduce(here: list[HarnessView]) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import RULE_COLUMNS, Drawing, Palette
    from buzz_host.services.demonstration import PLUGINS
    from buzz_host.terminal import printable_line

    palette = Palette()
    names = Text(", ").join(Text(name, palette.of(name)) for name in PLUGINS)
    programs = ", ".join(printable_line(f"{each.title} {each.probe.version or ''}".strip()) for each in here)
    Drawing(RULE_COLUMNS).lines(
        Text("Three plugins, two turns in one session of each real program, no model.", "bold"),
        Text.assemble(("plugins  ", "dim"), names),
        Text.assemble(("programs ", "dim"), programs),
        Text.assemble(("model    ", "dim"), "a rehearsal server on loopback, in a process of its own"),
        "",
    )


def _people(stage: Stage, view: HarnessView) -> Audience:
    from rich.text import Text

    from buzz_host.cli.drawing import RULE_COLUMNS, Drawing, Palette
    from buzz_host.cli.transcript import draw_outcome, draw_sent
    from buzz_host.cli.wording import counted, cut
    from buzz_host.services.audit import Audit
    from buzz_host.services.demonstration import AGENT, PLUGINS, Audience

    drawing, palette = Drawing(RULE_COLUMNS), Palette()
    for name in PLUGINS:
        palette.of(name)
    turns = 0
    note(f"starting {cut(view.title)} …", dim=True)

    def turn(identifier: str) -> None:
        nonlocal turns
        turns += 1
        found = Audit(stage.home).turn(identifier)
        size = counted(len((found.text or "").encode("utf-8")), "byte")
        drawing.rule(f"{view.title}, turn {turns}: to agent {AGENT}, {size}, as it stands on disk")
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

    return Audience(turn, switched)


def _json_audience(stage: Stage) -> Audience:
    from buzz_host.services.audit import Audit, turn_json
    from buzz_host.services.demonstration import Audience

    return Audience(
        turn=lambda identifier: print_json(turn_json(Audit(stage.home).turn(identifier))),
        switched=lambda now: None,
    )


def _draw_proof(proof: Proof, view: HarnessView) -> None:
    from rich.text import Text

    from buzz_host.cli.drawing import RULE_COLUMNS, Drawing
    from buzz_host.cli.wording import counted
    from buzz_host.terminal import printable_line

    drawing = Drawing(RULE_COLUMNS)
    drawing.rule(f"{view.title}, proof: what came off the socket, against the ledger")
    for number, each in enumerate(proof.turns, start=1):
        drawing.lines(_verdict(number, each))
        if each.behind:
            size = counted(len(each.behind), "byte")
            drawing.lines(Text(f"  {printable_line(view.title)} put {size} of its own behind it", "dim"))
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
    drawing.lines("")


def _verdict(number: int, each: TurnProof) -> Any:
    from rich.text import Text

    from buzz_host.terminal import printable_line

    if each.holds:
        return Text.assemble(
            ("✓ ", "green"), f"turn {number} is equal to the byte (request {each.request}; sha256, bytes)"
        )
    return Text.assemble(("✗ ", "red"), (f"turn {number} differs ", "red"), printable_line(each.difference))


def _print_proof(harness: str, proof: Proof) -> None:
    for each in proof.turns:
        print_json(
            {
                "event": "proof",
                "harness": harness,
                "turn": each.turn,
                "equal": each.holds,
                "difference": each.difference,
                "request": each.request,
                "recorded_bytes": len(each.recorded),
                "recorded_sha256": each.recorded_sha256,
                "ledger_bytes": len(each.kept),
                "ledger_sha256": each.kept_sha256,
                "behind_bytes": len(each.behind),
            }
        )
    print_json(
        {
            "event": "proved",
            "harness": harness,
            "holds": proof.holds,
            "entries": proof.entries,
            "faults": list(proof.faults),
        }
    )
