"""A host in the middle of a turn, to be killed, or to tell how its program died.

`python hosting.py KIND MODEL_URL FOLDER SESSION`
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import attrs

from buzz_author.events import TurnEnded, TurnStarted
from buzz_host.processes import Children, ProgramHost
from buzz_host.sessions.access import SessionAccess
from tests.harnesses.conformance import CLAUDE, Talk, spec_for


async def main(kind_id: str, url: str, folder: Path, session: str) -> None:
    kind = CLAUDE
    children = Children(folder / "run")
    access = SessionAccess(ProgramHost(children, session), "plugin-tools-only")
    spec = attrs.evolve(spec_for(kind, folder, url), session=session)
    talk = Talk(await kind.make().open(spec, access), spec)
    turn = await talk.send("rehearse: hang")
    await talk.until(TurnStarted, turn=turn)
    print("running", flush=True)
    await talk.ended()
    error = talk.of(TurnEnded)[0].error
    print("ended:", error.kind if error else None, flush=True)
    await children.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
