"""The faults that programs and models have in common, as `HarnessError`; the same kinds in every harness.

By HTTP status: 401 and 403 authentication, 429 rate-limit, 408 and 504 timeout, 529 and every other 5xx overloaded
(the server's own trouble, worth another try), other 4xx invalid-request.
"""

from __future__ import annotations

import re
from typing import Final

from buzz_author.harness import ErrorKind, HarnessError

RETRYABLE: Final[frozenset[ErrorKind]] = frozenset(
    {"rate-limit", "overloaded", "connection", "timeout", "process-died"}
)
_UNREACHED = re.compile(
    r"connect|ECONN|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|EPIPE|socket|network|fetch failed|dns error|stream|"
    r"sending request",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"timed? ?out|ETIMEDOUT|idle timeout", re.IGNORECASE)


def kind_of_status(status: int) -> ErrorKind:
    """What kind of fault an HTTP status of a model's endpoint is."""
    match status:
        case 401 | 403:
            return "authentication"
        case 429:
            return "rate-limit"
        case 408 | 504:
            return "timeout"
        case _ if status >= 500:
            return "overloaded"
        case _ if status >= 400:
            return "invalid-request"
        case _:
            return "unknown"


def of_status(status: int, native: str) -> HarnessError:
    """The fault of an answer with this status; `native` is what the program said of it."""
    kind = kind_of_status(status)
    return HarnessError(kind, native, status=status, retryable=kind in RETRYABLE)


def of_words(native: str) -> HarnessError:
    """The fault of a request that came to no answer, by what the program said of it."""
    kind: ErrorKind = "unknown"
    if _TIMED_OUT.search(native):
        kind = "timeout"
    elif _UNREACHED.search(native):
        kind = "connection"
    return HarnessError(kind, native, retryable=kind in RETRYABLE)


def refused(native: str) -> HarnessError:
    """A request that cannot succeed as it is."""
    return HarnessError("invalid-request", native)


def died(title: str, returncode: int | None, last_words: str) -> HarnessError:
    """The program ended by itself, or was killed; its last words on standard error are in it."""
    if returncode is None:
        how = "closed its output"
    else:
        how = f"ended with {f'exit code {returncode}' if returncode >= 0 else f'signal {-returncode}'}"
    return HarnessError("process-died", f"{title} {how}" + (f": {last_words}" if last_words else ""), retryable=True)
