"""What Codex reads in a text beside its words, and how it is kept from doing so.

`$name`, alone or as `[$name](path)`, pulls the skill of that name into the conversation, behind the message: our
sections would no longer be its end, and any text could bring any skill along. No setting turns that off. A word joiner
(U+2060, invisible, without width) behind the `$` does: the model reads the same letters. Codex never takes the names
of a few common variables for skills, so `$HOME` and its like stay as they are.
"""

from __future__ import annotations

import re
from typing import Final

WORD_JOINER: Final = "\u2060"
# Codex's own list of names that are no mention of a skill.
VARIABLES: Final = (
    "PATH",
    "HOME",
    "USER",
    "SHELL",
    "PWD",
    "TMPDIR",
    "TEMP",
    "TMP",
    "LANG",
    "TERM",
    "XDG_CONFIG_HOME",
)
_MENTION = re.compile(rf"\$(?!(?:{'|'.join(VARIABLES)})(?![A-Za-z0-9_:-]))(?=[A-Za-z0-9_])")


def encoded(text: str) -> str:
    """`text` with every `$` that could mention a skill kept apart from the name behind it."""
    return _MENTION.sub(f"${WORD_JOINER}", text) if "$" in text else text


def decoded(text: str) -> str:
    """What `encoded` was made of, where that had no word joiner behind a `$` of its own."""
    return text.replace(f"${WORD_JOINER}", "$")
