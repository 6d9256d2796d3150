"""The errors that people and programs meet, all below one root.

A person's bad input is a `BuzzError` whose message is one line: what is wrong, where, what to do. A fault of a
plugin is not an exception but a value (`PluginFault`): it is shown wherever the plugin is and stops nobody else.
"""

from __future__ import annotations

import traceback as _traceback

import attrs


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
        return cls(plugin, phase, describe(error), "".join(_formatted(error)))


def describe(error: BaseException) -> str:
    """One line for an exception: its class and what it says, whatever its `__str__` does."""
    try:
        said = str(error)
    except BaseException:
        said = "its text could not be read"
    name = type(error).__name__
    return f"{name}: {' '.join(said.split())}" if said.strip() else name


def _formatted(error: BaseException) -> list[str]:
    try:
        return _traceback.format_exception(error)
    except BaseException:
        return [f"{type(error).__name__}: its traceback could not be formatted\n"]
