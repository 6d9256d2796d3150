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
from buzz_host.turns.guards import ADMITTED, GuardRunner, Question, Verdict

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


class SnapshotTaker:
    """Takes the snapshots of one host. While nothing changes, it only asks the guards."""

    def __init__(self, contributions: Contributions, guards: GuardRunner, now: Callable[[], datetime]) -> None:
        self._contributions = contributions
        self._guards = guards
        self._now = now
        self._candidates = _Candidates((), frozenset())

    async def take(
        self, agent: AgentView, standings: Sequence[PluginStanding], *, notes: Literal["take", "show", "leave"]
    ) -> TakenSnapshot:
        """The snapshot for `agent`, with the guards asked once.

        `notes` says what becomes of the one-time notes that wait for it: a turn takes them, a preview only shows them,
        and a steered message leaves them for the next turn. `standings` has a row for each plugin that was found.
        """
        taken_at = self._now()
        contributions = self._contributions
        revision = contributions.revision
        speaking = frozenset(each.plugin for each in standings if each.standing == "active")
        candidates = self._candidates = self._candidates.current(contributions.snapshot(INSTRUCTIONS), speaking)
        admitted: tuple[Section, ...] = ()

        def instructions() -> tuple[Section, ...]:
            return admitted

        handle = TurnAgent(agent.name, agent.scope, agent.harness, agent.model, agent.cwd, instructions)
        answers = await self._guards.ask(candidates.questions, handle.for_guard)
        admitted, left_out = candidates.judged(answers.verdicts)
        left_out += [row for each in standings if each.standing != "active" for row in _silent(each, contributions)]
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


class _Candidates:
    """The instructions that may be admitted, and the questions to ask about them; made anew only when they change."""

    def __init__(self, registered: tuple[Contribution[CheckedInstructions], ...], speaking: frozenset[str]) -> None:
        self._registered = registered
        self._speaking = speaking
        self._all = [each for each in registered if each.plugin in speaking]
        self._sections = tuple(each.value.section for each in self._all)
        self.questions = [
            Question(each.plugin, each.id, each.revision, each.value.when)
            for each in self._all
            if each.value.when is not None
        ]

    def current(
        self, registered: tuple[Contribution[CheckedInstructions], ...], speaking: frozenset[str]
    ) -> _Candidates:
        """These, if they still are what is registered and may speak, else new ones."""
        if registered is self._registered and speaking == self._speaking:
            return self
        return _Candidates(registered, speaking)

    def judged(self, verdicts: Sequence[Verdict]) -> tuple[tuple[Section, ...], list[LeftOut]]:
        """What is admitted, and a row for each that is not; `verdicts` answer `questions`."""
        if all(each is ADMITTED for each in verdicts):
            return self._sections, []
        answers = iter(verdicts)
        sections: list[Section] = []
        left_out: list[LeftOut] = []
        for each in self._all:
            verdict = next(answers) if each.value.when is not None else ADMITTED
            if verdict.reason is None:
                sections.append(each.value.section)
            else:
                left_out.append(LeftOut(each.plugin, each.id, verdict.reason, verdict.detail))
        return tuple(sections), left_out


def _waiting(contributions: Contributions, agent: str) -> tuple[Contribution[Note], ...]:
    return tuple(each for each in contributions.snapshot(NOTES) if each.value.agent == agent)


def _silent(plugin: PluginStanding, contributions: Contributions) -> list[LeftOut]:
    """The rows of a plugin that may not speak: one for each instruction it had, one in all if it never ran."""
    reason = _REASONS[plugin.standing]
    ids = contributions.known_ids(plugin.plugin, INSTRUCTIONS) or (EVERY_INSTRUCTION,)
    return [LeftOut(plugin.plugin, each, reason, plugin.detail) for each in ids]
