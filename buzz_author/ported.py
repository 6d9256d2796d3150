"""Ported names: an API that comes from TypeScript keeps its spelling and gets a PEP 8 twin (INS-01).

`@ported` gives each public camelCase method of a class its snake_case twin: the same function, not a wrapper.
"""

from __future__ import annotations

import re
from typing import TypeVar

C = TypeVar("C", bound=type)


def pep8_name(name: str) -> str:
    """`addInstructions` as `add_instructions`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda match: f"_{match[1].lower()}", name)


def ported(cls: C) -> C:
    """Add the PEP 8 twin of each public method whose name is camelCase."""
    for name, member in list(vars(cls).items()):
        twin = pep8_name(name)
        if twin != name and not name.startswith("_") and name[0].islower():
            setattr(cls, twin, member)
    return cls
