"""One rule for the names of plugins, agents and skills, and one for the ids of contributions.

Names become folders, attributes of sections, and parts of tool names, so the rule is strict and the same everywhere
(PLG-08). Ids live below their plugin's name and follow the rule of the system that we port (INS-01).
"""

from __future__ import annotations

import re
from typing import Final

from buzz_author.errors import InvalidName
from buzz_author.text import exact

NAME_MAX_CHARS: Final = 64
ID_MAX_CHARS: Final = 64
RESERVED_NAMES: Final = frozenset({"bus", "skills", "panel", "attention", "host"})

_NAME: Final = r"[a-z0-9][a-z0-9_-]{0,63}"
_ID: Final = r"[a-z0-9][a-z0-9._-]{0,63}"


def check_name(name: object, what: str) -> str:
    """`name` itself, if it may name a plugin, an agent or a skill.

    `what` is the noun for the message, such as `plugin`. Raises `InvalidName` with one line that says what is
    allowed (PLG-08).
    """
    if not isinstance(name, str) or not re.fullmatch(_NAME, name, re.ASCII):
        raise InvalidName(
            f"{what} name {_shown(name)} is not allowed: use 1 to {NAME_MAX_CHARS} of a-z, 0-9, '-' and '_', "
            "starting with a letter or a digit"
        )
    name = exact(name)
    if name in RESERVED_NAMES:
        raise InvalidName(
            f"{what} name {name!r} is reserved by Buzz ({', '.join(sorted(RESERVED_NAMES))}): choose another"
        )
    return name


def check_id(identifier: object, what: str) -> str:
    """`identifier` itself, if it may be the id of a contribution. Raises `InvalidName` (INS-03)."""
    if not isinstance(identifier, str) or not re.fullmatch(_ID, identifier, re.ASCII):
        raise InvalidName(
            f"{what} id {_shown(identifier)} is not allowed: use 1 to {ID_MAX_CHARS} of a-z, 0-9, '.', '_' and '-', "
            "starting with a letter or a digit"
        )
    return exact(identifier)


def folded(name: str) -> str:
    """What two names share when they differ only in `_` and `-`: such names may not stand side by side (PLG-08)."""
    return name.replace("_", "-")


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except BaseException:
        text = f"<{type(value).__name__}>"
    return ascii(text)[1:-1] if not text.isprintable() else text if len(text) <= 80 else text[:77] + "..."
