"""Errors say something whatever they are made of."""

from __future__ import annotations

import pytest

from buzz_author.errors import (
    FAULT_TRACEBACK_MAX_CHARS,
    BuzzError,
    InvalidName,
    PluginClosed,
    PluginFault,
    RegistrationError,
    describe,
)


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class NoText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class Sly(str):
    __slots__ = ()

    def split(self, *_: object) -> list[str]:
        raise RuntimeError


class OwnText(Exception):
    def __str__(self) -> str:
        return Sly("sly text")


class Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError


class OfNoName(Exception, metaclass=Nameless):
    pass


class Recursive(Exception):
    def __str__(self) -> str:
        return str(self)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


@pytest.mark.req("PLG-02")
def test_errors_are_buzz_errors_and_value_errors() -> None:
    for kind in (InvalidName, RegistrationError, PluginClosed):
        assert issubclass(kind, BuzzError)
        assert issubclass(kind, ValueError)


@pytest.mark.req("PLG-02")
@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("a\nb\r\n  c"), "ValueError: a b c"),
        (ValueError(), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        (KeyError("x"), "KeyError: 'x'"),
        (Mute(), "Mute: its text could not be read"),
        (NoText(), "NoText: its text could not be read"),
        (Recursive(), "Recursive: its text could not be read"),
        (OwnText(), "OwnText: sly text"),
        (OfNoName("x"), "an exception: x"),
        (ValueError("a\ud800"), "ValueError: a\ufffd"),
        (ValueError("x" * 10_000), "ValueError: " + "x" * 487 + "…"),
        (SystemExit(3), "SystemExit: 3"),
        (ExceptionGroup("two", [ValueError("a"), Mute()]), "ExceptionGroup: two (2 sub-exceptions)"),
    ],
)
def test_describing_never_fails(error: BaseException, line: str) -> None:
    assert describe(error) == line


@pytest.mark.req("PLG-02")
@pytest.mark.parametrize(
    "error", [ValueError("x"), Mute(), NoText(), Recursive(), OfNoName(), ValueError("\ud800" * 100_000)]
)
def test_a_fault_is_made_of_any_exception(error: BaseException) -> None:
    fault = PluginFault.from_exception("style", "apply", raised(error))
    assert (fault.plugin, fault.phase) == ("style", "apply")
    assert fault.message == describe(error)
    assert fault.traceback
    assert len(fault.traceback) <= FAULT_TRACEBACK_MAX_CHARS
    (fault.message + fault.traceback).encode("utf-8")


@pytest.mark.req("PLG-02")
def test_a_fault_says_where_it_happened() -> None:
    traceback = PluginFault.from_exception("style", "apply", raised(ValueError("x"))).traceback
    assert "in raised" in traceback
    assert traceback.endswith("ValueError: x\n")
