"""What holds for one agent at this moment, taken in one go: the instructions that are admitted, and why others are not.

Every instruction that any plugin could have spoken ends up in the snapshot, either as a section or as a row that says
why it was left out, so that an auditor never has to guess (INS-11, TRN-06).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal

import attrs

from buzz_author.errors import PluginFault
from buzz_author.instructions import CheckedInstructions
from buzz_author.sections import Section
from buzz_author.turns import EVERY_INSTRUCTION, LeftOut, LeftOutReason, Snapshot
from buzz_host.agents.handle import TurnAgent
from buzz_host.plugins.contributions import INSTRUCTIONS, NOTES, Contribution, Contributions, Note
from buzz_host.turns.guards import GuardRunner, Question

Standing = Literal["active", "starting", "failed", "off"]
_REASONS: dict[Standing, LeftOutReason] = {
    "starting": "plugin-starting",
    "failed": "plugin-failed",
    "off": "plugin-off",
}


@attrs.frozen
class PluginStanding:
    """How one plugin stands towards one agent: whether it may speak, and if not, why (in words for people)."""

    plugin: str
    content_hash: str
    standing: Standing
    detail: str = ""


@attrs.frozen
class AgentView:
    """The agent that a snapshot is for, as its handle will show it."""

    name: str
    scope: str
    harness: str
    model: str | None
    cwd: Path


@attrs.frozen
class TakenSnapshot:
    """A snapshot, what the guards did wrong, and the notes that it took (to be put back if the turn is never sent)."""

    snapshot: Snapshot
    faults: tuple[PluginFault, ...]
    taken_notes: tuple[Contribution[Note], ...]


async def take_snapshot(
    agent: AgentView,
    *,
    contributions: Contributions,
    standings: Sequence[PluginStanding],
    guards: GuardRunner,
    notes: Literal["take", "show", "leave"],
    now: Callable[[], datetime],
) -> TakenSnapshot:
    """The snapshot for `agent`, with the guards asked once.

    `notes` says what becomes of the one-time notes that wait for it: a turn takes them, a preview only shows them, and a
    steered message leaves them for the next turn. `standings` has a row for each plugin that was found.
    """
    taken_at = now()
    revision = contributions.revision
    speaking = {each.plugin for each in standings if each.standing == "active"}
    candidates = [each for each in contributions.snapshot(INSTRUCTIONS) if each.plugin in speaking]
    left_out = [row for each in standings if each.standing != "active" for row in _silent(each, contributions)]
    admitted: tuple[Section, ...] = ()

    def instructions() -> tuple[Section, ...]:
        return admitted

    handle = TurnAgent(agent.name, agent.scope, agent.harness, agent.model, agent.cwd, instructions)
    answers = await guards.ask(
        [_question(each) for each in candidates if each.value.when is not None], handle.for_guard
    )
    verdicts = iter(answers.verdicts)
    sections: list[Section] = []
    for each in candidates:
        verdict = next(verdicts) if each.value.when is not None else None
        if verdict is None or verdict.reason is None:
            sections.append(each.value.section)
        else:
            left_out.append(LeftOut(each.plugin, each.id, verdict.reason, verdict.detail))
    admitted = tuple(sections)
    waiting = contributions.take_notes(agent.name) if notes == "take" else ()
    shown = waiting if notes == "take" else _waiting(contributions, agent.name) if notes == "show" else ()
    snapshot = Snapshot(
        revision=revision,
        agent=handle,
        taken_at=taken_at,
        instructions=admitted,
        notes=tuple(each.value.section for each in shown if each.plugin in speaking),
        left_out=tuple(sorted(left_out, key=lambda row: (row.plugin, row.id))),
        plugins=tuple(sorted((each.plugin, each.content_hash) for each in standings if each.standing == "active")),
    )
    return TakenSnapshot(snapshot, answers.faults, waiting)


def _waiting(contributions: Contributions, agent: str) -> tuple[Contribution[Note], ...]:
    return tuple(each for each in contributions.snapshot(NOTES) if each.value.agent == agent)


def _question(contribution: Contribution[CheckedInstructions]) -> Question:
    when = contribution.value.when
    assert when is not None
    return Question(contribution.plugin, contribution.id, contribution.revision, when)


def _silent(plugin: PluginStanding, contributions: Contributions) -> list[LeftOut]:
    """The rows of a plugin that may not speak: one for each instruction it had, one in all if it never ran."""
    reason = _REASONS[plugin.standing]
    ids = contributions.known_ids(plugin.plugin, INSTRUCTIONS) or (EVERY_INSTRUCTION,)
    return [LeftOut(plugin.plugin, each, reason, plugin.detail) for each in ids]
