"""Ported names: an API that comes from TypeScript keeps its spelling and gets a PEP 8 twin (INS-01).

`@ported` gives each public camelCase method of a class its snake_case twin: the same function, not a wrapper.
"""

from __future__ import annotations

import re
from typing import TypeVar

C = TypeVar("C", bound=type)


def pep8_name(name: str) -> str:
    """`addInstructions` as `add_instructions`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def ported(cls: C) -> C:
    """Add the PEP 8 twin of each public method whose name is camelCase.

    Raises `TypeError` where the class has another function under the twin's name: the two would drift apart.
    """
    for name, member in list(vars(cls).items()):
        twin = pep8_name(name)
        if twin == name or not name[0].islower():
            continue
        if vars(cls).get(twin, member) is not member:
            raise TypeError(f"{cls.__name__}.{twin} is not the same as its twin {name}")
        setattr(cls, twin, member)
    return cls
