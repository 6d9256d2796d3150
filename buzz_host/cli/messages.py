"""The message of a turn as the command line takes it: the argument, or standard input for `-`."""

from __future__ import annotations

import sys
from typing import Final

from buzz_author.errors import BuzzError

STANDARD_INPUT: Final = "-"


class MessageError(BuzzError):
    """The message cannot be read as text."""


def message_from(argument: str) -> str:
    """The message that `argument` stands for: itself, or all of standard input for `-`.

    Raises `MessageError` for bytes that are no UTF-8, with the place of the first; `BuzzError` for an empty message.
    """
    from buzz_host.turns.compose import checked_message

    if argument != STANDARD_INPUT:
        try:
            argument.encode("utf-8")
        except UnicodeEncodeError as error:
            # Python smuggles such bytes of an argument in as lone surrogates.
            raise MessageError(
                f"TEXT is not UTF-8 (character {error.start}): save it in a UTF-8 file, give -"
            ) from None
        return checked_message(argument)
    octets = sys.stdin.buffer.read()
    try:
        return checked_message(octets.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise MessageError(
            f"standard input is not UTF-8 (byte {error.start} is 0x{octets[error.start]:02x}): convert it first"
        ) from None
