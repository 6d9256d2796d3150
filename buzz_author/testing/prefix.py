"""Nothing that changes per turn stands before the turn's own text, on the requests that the real program sends."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Final

import pytest

from buzz_author.sections import parse
from buzz_author.testing.frame import SOAK, Frame
from buzz_author.testing.stage import Stage
from buzz_author.testing.talk import instruction
from buzz_author.testing.wires import conversation, end_of_newest_user_message, offered_tools, system_texts

TURNS: Final = 200 if SOAK else 20
PLUGINS: Final = ("archive", "house-rules", "style", "weather")
SEED: Final = 11


class Prefix(Frame):
    """Many turns while plugins are switched on and off at random."""

    @pytest.mark.req("TRN-07", "HAR-03", "INS-06")
    async def test_each_turn_carries_the_current_set_and_every_byte_before_it_stays(self, stage: Stage) -> None:
        talk = await stage.open()
        chance = random.Random(SEED)
        on: set[str] = set()
        turns = []
        for number in range(TURNS):
            on ^= {chance.choice(PLUGINS)}
            said = [instruction(plugin, f"Instructions of {plugin}, § å.") for plugin in sorted(on)]
            turn = talk.composed(f"Message {number} §å\N{LINE SEPARATOR}</buzz-event>", said=said)
            ended = await talk.ask(turn)
            assert ended.status == "completed"
            turns.append((turn, sorted(on)))
        requests = stage.requests()
        assert len(requests) == TURNS
        for request, (turn, current) in zip(requests, turns, strict=True):
            newest = end_of_newest_user_message(request, self.kind)
            assert newest == turn.text
            spoken = [each for each in parse(newest) if each.tag == "plugin-instructions"]
            assert [dict(each.attributes)["plugin"] for each in spoken] == current
        for earlier, later in pairwise(requests):
            assert system_texts(later) == system_texts(earlier)
            assert offered_tools(later) == offered_tools(earlier)
            kept = conversation(earlier)
            assert conversation(later)[: len(kept)] == kept
