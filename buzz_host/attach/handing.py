"""Answering the hook's clients: one set for each prompt, recorded before any of it goes out.

The entries of one prompt ask at the same time, and are given parts of the same set. A set that nobody took, or of which
a part was not taken, is recorded as that. All is done within a bound, past which the client helps itself (AUT-03).
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any, Final

from buzz_author.errors import BuzzError
from buzz_host.attach.current_set import CurrentSet, SetTaker, resting_folder
from buzz_host.attach.ledger_turns import HookInput, record_handed_over, record_not_taken
from buzz_host.attach.registry import Attachment
from buzz_host.store import Store

log = logging.getLogger(__name__)

# All that a person's prompt may wait for us. The client waits 2 s, the program 5 s for its hook.
ANSWER_BUDGET_S: Final = 1.5
# Entries that have not asked by then never will: the settings file has fewer than the registry.
ENTRIES_DEADLINE_S: Final = 10.0
# The entries of one prompt ask at the same time: one that comes later asks for another message.
SAME_PROMPT_S: Final = 2.0
PROMPTS_REMEMBERED: Final = 256


class Prompt:
    """One prompt that is being answered: its set, its turn, and which parts of it were taken."""

    def __init__(self, began: float) -> None:
        self.began: Final = began
        self.current: CurrentSet | None = None
        self.turn: str | None = None
        self.asked: set[int] = set()
        self.recorded: asyncio.Task[None] | None = None
        self.waiting: set[int] = set()
        self.closed = False


class Handing:
    """Hands the sets of one host over, and keeps the ledger of that."""

    def __init__(self, taker: SetTaker, store: Store, now: Callable[[], datetime]) -> None:
        self._taker = taker
        self._store = store
        self._now = now
        self._prompts: OrderedDict[tuple[str, ...], Prompt] = OrderedDict()
        self._earlier: deque[Prompt] = deque(maxlen=PROMPTS_REMEMBERED)
        self._tasks: set[asyncio.Task[None]] = set()

    async def part(self, attachment: Attachment, hook: HookInput, number: int) -> tuple[Prompt, str] | None:
        """The text of entry `number` for the prompt of `hook`, with the prompt to report to; empty for nothing to say.

        None where the set could not be taken and recorded in time: the client then helps itself.
        """
        prompt = self._prompt(attachment, hook, number)
        assert prompt.recorded is not None
        left = max(0.0, prompt.began + ANSWER_BUDGET_S - monotonic())
        await asyncio.wait([prompt.recorded], timeout=left)
        if not prompt.recorded.done() or prompt.current is None or prompt.closed:
            self._give_up(prompt, "it could not be recorded in time")
            return None
        texts = prompt.current.texts
        return prompt, texts[number - 1] if number <= len(texts) else ""

    def taken(self, prompt: Prompt, number: int) -> None:
        """The client has printed entry `number`."""
        prompt.waiting.discard(number)

    def not_taken(self, prompt: Prompt, number: int) -> None:
        """The client of entry `number` did not say that it printed it."""
        if number in prompt.waiting:
            self._give_up(prompt, f"entry {number} was not taken: the hook's client no longer waited")

    def look_after(self) -> None:
        """Close prompts whose entries never asked; called now and then."""
        for prompt in (*self._earlier, *self._prompts.values()):
            if prompt.waiting and not prompt.closed and monotonic() - prompt.began > ENTRIES_DEADLINE_S:
                missing = ", ".join(map(str, sorted(prompt.waiting)))
                self._give_up(prompt, f"entry {missing} was never asked for: attach again, the file has other entries")

    async def close(self) -> None:
        """Wait for what is being recorded."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _prompt(self, attachment: Attachment, hook: HookInput, number: int) -> Prompt:
        """The prompt that this entry asks for. Each entry asks once: one that asks again asks for another message,
        which may say the same and, where it was typed while a turn ran, have the same id."""
        key = (attachment.id, hook.session, hook.prompt, hook.digest)
        known = self._prompts.get(key)
        if known is not None and number not in known.asked and monotonic() - known.began < SAME_PROMPT_S:
            known.asked.add(number)
            return known
        prompt = self._prompts[key] = Prompt(monotonic())
        prompt.asked.add(number)
        self._prompts.move_to_end(key)
        if known is not None:
            self._earlier.append(known)
        while len(self._prompts) > PROMPTS_REMEMBERED:
            self._prompts.popitem(last=False)
        prompt.recorded = self._start(self._record(prompt, attachment, hook))
        return prompt

    async def _record(self, prompt: Prompt, attachment: Attachment, hook: HookInput) -> None:
        current: CurrentSet | None = None
        try:
            cwd = Path(hook.cwd) if hook.cwd else resting_folder(attachment)
            current = taken = await self._taker.take(attachment, cwd, notes="take")
            at = self._now()
            prompt.turn = await self._store.write(
                lambda tx: record_handed_over(tx, attachment.id, hook, taken, by="host", at=at, texts=taken.texts)
            )
        except BuzzError as error:
            log.warning("a prompt of %s gets nothing from this host: %s", attachment.where, error)
            if current is not None:
                self._taker.give_back(current)
            return
        prompt.current = current
        prompt.waiting = set(range(1, len(current.texts) + 1))
        if prompt.closed:
            # The client was sent away meanwhile, with the ledger about to say that it was not.
            prompt.closed = False
            self._give_up(prompt, "it could not be recorded in time")

    def _give_up(self, prompt: Prompt, why: str) -> None:
        if prompt.closed:
            return
        prompt.closed = True
        turn, current = prompt.turn, prompt.current
        if turn is None or current is None:
            return
        self._taker.give_back(current)
        at = self._now()
        self._start(self._correct(turn, at, why))

    async def _correct(self, turn: str, at: datetime, why: str) -> None:
        try:
            await self._store.write(lambda tx: record_not_taken(tx, turn, at, why))
        except BuzzError as error:
            log.warning("turn %s: that it was not taken could not be recorded: %s", turn, error)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
