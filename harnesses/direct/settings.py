"""What a person may set of this harness, in `[plugins.direct]` of buzz.toml."""

from __future__ import annotations

from typing import Final

import attrs

from buzz_author.errors import BuzzError
from buzz_author.json_values import JsonObject, JsonValue

CONTEXT_TOKENS: Final = 100_000
CONTEXT_TOKENS_MIN: Final = 1_000
IDLE_S: Final = 300.0


@attrs.frozen
class DirectSettings:
    """`model` is asked for where the agent's file names none; `context_tokens` is how much of a conversation is sent,
    by estimate; an endpoint that is silent for `idle_s` seconds has failed."""

    model: str | None = None
    context_tokens: int = CONTEXT_TOKENS
    idle_s: float = IDLE_S

    @classmethod
    def read(cls, given: JsonObject) -> DirectSettings:
        """The settings as written. Raises `BuzzError` with the key and what is expected."""
        model = given.get("model")
        if model is not None and not isinstance(model, str):
            raise _wrong("model", "a text", model)
        tokens = given.get("context_tokens", CONTEXT_TOKENS)
        if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < CONTEXT_TOKENS_MIN:
            raise _wrong("context_tokens", f"a number of at least {CONTEXT_TOKENS_MIN:,}", tokens)
        idle = given.get("idle_s", IDLE_S)
        if isinstance(idle, bool) or not isinstance(idle, int | float) or idle <= 0:
            raise _wrong("idle_s", "seconds, more than 0", idle)
        return cls(model, tokens, float(idle))


def _wrong(key: str, expected: str, found: JsonValue) -> BuzzError:
    return BuzzError(f"[plugins.direct] {key}: expected {expected}, found {found!r}")
