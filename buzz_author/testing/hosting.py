"""A host in a process of its own, to be killed in the middle of a turn, or to tell how its program died.

`python -m buzz_author.testing.hosting FILE CLASS MODEL_URL FOLDER SESSION`: FILE is the module of CLASS, a class of
the suite; its `kind` is made here. After one whole turn it says its native id, and `running` within the second.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Final

import attrs

from buzz_author.events import TurnStarted
from buzz_author.testing.stage import spec_for
from buzz_author.testing.talk import Talk
from buzz_author.testing.under_test import HarnessUnderTest

WORD: Final = "The word is heron."


def under_test(file: str, name: str) -> HarnessUnderTest:
    """The `kind` of a class in a test module, which may be one of a package."""
    folder, dotted = Path(file).resolve().parent, Path(file).stem
    if (folder / "__init__.py").is_file():
        while (folder / "__init__.py").is_file():
            dotted, folder = f"{folder.name}.{dotted}", folder.parent
        sys.path.insert(0, str(folder))
        found: HarnessUnderTest = getattr(importlib.import_module(dotted), name).kind
        return found
    made = importlib.util.spec_from_file_location("harness_under_test", file)
    assert made is not None
    assert made.loader is not None
    module = importlib.util.module_from_spec(made)
    sys.modules["harness_under_test"] = module
    made.loader.exec_module(module)
    kind: HarnessUnderTest = getattr(module, name).kind
    return kind


async def main(kind: HarnessUnderTest, url: str, folder: Path, session: str) -> None:
    """Host it; the lines on standard output tell how far it is."""
    from buzz_host.processes import Children, ProgramHost
    from buzz_host.sessions.access import SessionAccess

    children = Children(folder / "run")
    access = SessionAccess(ProgramHost(children, session), "plugin-tools-only")
    spec = attrs.evolve(spec_for(kind, folder, url), session=session)
    harness = kind.make()
    talk = Talk(await harness.open(spec, access), spec, lambda text: harness.encode(text, spec))
    await talk.ask(WORD)
    print(json.dumps(talk.session.native_id), flush=True)
    turn = await talk.send("rehearse: hang")
    await talk.until(TurnStarted, turn=turn)
    print("running", flush=True)
    await talk.ended()
    ended = await talk.until_ended(turn)
    print("ended:", ended.error.kind if ended.error else None, flush=True)
    await children.close()


if __name__ == "__main__":
    asyncio.run(main(under_test(sys.argv[1], sys.argv[2]), sys.argv[3], Path(sys.argv[4]), sys.argv[5]))
