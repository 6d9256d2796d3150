"""What was handed over, as turns of the ledger: recorded before it goes out, and corrected where it was not taken.

The turn's id is the program's own id of the prompt, which stands in the program's transcript as well: an auditor can
hold one against the other. A message that is typed while a turn runs has that turn's id with the program, so its own
turn gets a fresh one, and names the program's among its messages (AUT-03, AUD-01).
"""

from __future__ import annotations

import json
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal
from uuid import UUID, uuid4, uuid5

import attrs

from buzz_author.harness import HarnessError
from buzz_author.sections import SECTION_SEPARATOR
from buzz_author.text import well_formed
from buzz_host.attach.current_set import CurrentSet
from buzz_host.attach.registry import HARNESS
from buzz_host.ledger import EndRecord, HandedOver, TurnRecord, record_end, record_turn
from buzz_host.sessions.roster import KnownSession, remember_attached
from buzz_host.store import Transaction

UNKNOWN_SESSION: Final = "unknown"
FIELD_MAX_CHARACTERS: Final = 4096
# The person's words stand last in what the program tells its hook; inside of a text these quotes would be escaped.
_PROMPT_KEY: Final = b',"prompt":'
# For the ids of turns that are brought in from notes: made so that the same note gives the same id.
_NAMESPACE: Final = UUID("6f0c7a0e-5a0e-4a3c-9f43-0d1c0a6a77b1")


@attrs.frozen
class HookInput:
    """What the program told its hook, without what the person wrote. Empty where it did not say.

    `prompt` is the program's id of the prompt. `digest` is that of all that it told, as far as the client read it: it
    tells two messages apart that have one id, and is kept nowhere.
    """

    session: str
    prompt: str
    cwd: str
    digest: str = ""

    @classmethod
    def read(cls, octets: bytes) -> HookInput:
        """The input that `octets` hold; they may end in the middle of the prompt. What cannot be read is empty."""
        fields: dict[str, object] = {}
        for each in (octets, octets.partition(_PROMPT_KEY)[0] + b"}"):
            try:
                said = json.loads(each.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(said, dict):
                fields = said
                break

        def text(key: str) -> str:
            value = fields.get(key)
            return well_formed(value)[:FIELD_MAX_CHARACTERS] if isinstance(value, str) else ""

        digest = sha256(octets).hexdigest()
        return cls(text("session_id") or UNKNOWN_SESSION, text("prompt_id"), text("cwd"), digest)


def record_handed_over(
    tx: Transaction,
    attachment: str,
    hook: HookInput,
    current: CurrentSet,
    *,
    by: Literal["host", "client"],
    at: datetime,
    texts: tuple[str, ...],
    turn: str | None = None,
) -> str:
    """Record that `texts` of the set `current` are handed over for the prompt of `hook`; gives the turn's id.

    `turn` is the id to use; None takes the prompt's own, or a fresh one where the ledger has that already.
    """
    identifier = turn or _free(tx, prompt_turn(hook.prompt))
    record_turn(
        tx,
        TurnRecord(
            turn=identifier,
            kind="message",
            session=hook.session,
            agent=current.agent,
            harness=HARNESS,
            at=at,
            text=SECTION_SEPARATOR.join(texts),
            sections=current.sections,
            model=current.model,
            left_out=current.left_out,
            faults=current.faults,
            plugins=current.plugins,
            revision=current.revision,
            message_ids=(hook.prompt,) if hook.prompt else (),
            handed_over=HandedOver(by, attachment, hook.cwd or current.cwd, texts),
        ),
    )
    remember_attached(tx, KnownSession(hook.session, current.agent, HARNESS, Path(hook.cwd or current.cwd), None, at))
    return identifier


def record_not_taken(tx: Transaction, turn: str, at: datetime, why: str) -> None:
    """Record that what was about to be handed over was not taken, or not all of it."""
    record_end(tx, EndRecord(turn, at, "failed", error=HarnessError("timeout", why)))


def prompt_turn(prompt: str) -> str | None:
    """The turn's id for the prompt id `prompt`: itself, where it is a UUID; else None."""
    try:
        return str(UUID(prompt))
    except ValueError:
        return None


def note_turn(name: str) -> str:
    """The turn's id for a note: always the same for the same note, so that it is brought in once."""
    return str(uuid5(_NAMESPACE, name))


def _free(tx: Transaction, wanted: str | None) -> str:
    if wanted is None or tx.execute("SELECT 1 FROM entries WHERE turn = ? LIMIT 1", (wanted,)).fetchone():
        return str(uuid4())
    return wanted
