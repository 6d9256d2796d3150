"""The errors that people and programs meet, all below one root.

A person's bad input is a `BuzzError` whose message is one line: what is wrong, where, what to do. A fault of a
plugin is not an exception but a value (`PluginFault`): it is shown wherever the plugin is and stops nobody else.
"""

from __future__ import annotations

import traceback as _traceback
from typing import Final

import attrs

from buzz_author.text import well_formed

# A fault is shown in a row and kept in the ledger with each turn that it touches, so no plugin decides how long it is.
FAULT_MESSAGE_MAX_CHARS: Final = 500
FAULT_TRACEBACK_MAX_CHARS: Final = 16_384


class BuzzError(Exception):
    """The root of every error that Buzz raises on purpose; its text is meant for the person who reads it."""


class InvalidName(BuzzError, ValueError):
    """A name that is not allowed for a plugin, an agent, a skill or an instruction."""


class RegistrationError(BuzzError, ValueError):
    """A contribution that cannot be registered: empty, too large, twice, or out of its time."""


class PluginClosed(RegistrationError):
    """A plugin that was stopped, or was given up on, called its context."""


@attrs.frozen
class PluginFault:
    """Something that one plugin did wrong; the others and the turn go on (PLG-02, ASM-04).

    `phase` says when (`manifest`, `load`, `apply`, `dispose`, `when`, …); `traceback` is empty where no exception
    was raised.
    """

    plugin: str
    phase: str
    message: str
    traceback: str = ""

    @classmethod
    def from_exception(cls, plugin: str, phase: str, error: BaseException) -> PluginFault:
        """The fault for an exception that a plugin let escape; never fails, even if its `__str__` does."""
        return cls(plugin, phase, describe(error), _formatted(error))


def describe(error: BaseException) -> str:
    """One line for an exception, at most 500 characters: its class and what it says, whatever its `__str__` does."""
    try:
        # The methods of `str` itself: what `__str__` returned may be of a class that has its own.
        said = " ".join(str.split(str(error)))
    except BaseException:
        said = "its text could not be read"
    line = f"{_class_name(error)}: {said}" if said else _class_name(error)
    return well_formed(line if len(line) <= FAULT_MESSAGE_MAX_CHARS else line[: FAULT_MESSAGE_MAX_CHARS - 1] + "…")


def _class_name(error: BaseException) -> str:
    try:
        return " ".join(str.split(type(error).__name__)) or "an exception"
    except BaseException:
        return "an exception"


def _formatted(error: BaseException) -> str:
    try:
        # The end says where it happened and what it was.
        return well_formed("".join(_traceback.format_exception(error))[-FAULT_TRACEBACK_MAX_CHARS:])
    except BaseException:
        return f"{_class_name(error)}: its traceback could not be formatted\n"
