"""The system prompt of a session: the base prompt, then the agent's own.

It is made once, when a session starts; nothing that changes from turn to turn may enter it, so that the caches of the
models' providers keep hitting (TRN-07). What the base prompt promises about sections is INS-08.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from buzz_author.text import trim, well_formed

_TEXT: Final = Path(__file__).with_name("base_prompt.md")


@lru_cache(maxsize=1)
def base_prompt() -> str:
    """The text that every agent is given first: how turns are written, and what holds over what."""
    return trim(_TEXT.read_text(encoding="utf-8"))


def system_prompt(agent_prompt: str) -> str:
    """The whole system prompt of an agent, from the prompt in its file."""
    return f"{base_prompt()}\n\n# Who you are\n\n{trim(well_formed(agent_prompt))}\n"
