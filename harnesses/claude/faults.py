"""What goes wrong in Claude Code and in the SDK, as one `HarnessError`.

Kinds by HTTP status: 401 and 403 authentication (the program words both as such), 429 rate-limit, 408 and 504 timeout,
529 and every other 5xx overloaded (the server's own trouble, worth another try), other 4xx invalid-request. Without a
status no answer came: connection, or what the program itself calls it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import Final

from claude_agent_sdk import (
    CLIConnectionError,
    CLIJSONDecodeError,
    CLINotFoundError,
    ProcessError,
    ResultError,
    ResultMessage,
)

from buzz_author.harness import ErrorKind, HarnessError

RETRYABLE: Final[frozenset[ErrorKind]] = frozenset(
    {"rate-limit", "overloaded", "connection", "timeout", "process-died"}
)
# For what fails without a request: no login, a prompt that is too long. `server_error` says too little for a kind.
_NAMED: Final[dict[str, ErrorKind]] = {
    "authentication_failed": "authentication",
    "billing_error": "authentication",
    "invalid_request": "invalid-request",
    "model_not_found": "invalid-request",
    "rate_limit": "rate-limit",
}
STDERR_LINES: Final = 40
STDERR_LINE_CHARACTERS: Final = 500
TAIL_CHARACTERS: Final = 2000
_UNREACHED = re.compile(
    r"connection|ECONN|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|EPIPE|socket|network|fetch failed", re.IGNORECASE
)
_TIMED_OUT = re.compile(r"timed? ?out|ETIMEDOUT", re.IGNORECASE)


class StderrTail:
    """The last lines that the program wrote to standard error, bounded."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=STDERR_LINES)
        self.said = asyncio.Event()

    def add(self, line: str) -> None:
        self.said.set()
        self._lines.append(line[:STDERR_LINE_CHARACTERS])

    def __str__(self) -> str:
        return "\n".join(self._lines)[-TAIL_CHARACTERS:]


def of_result(result: ResultMessage, said: str, named: str | None = None) -> HarnessError:
    """The fault of a turn that failed; `said` is what stood in place of an answer, `named` the program's own kind."""
    native = said or (result.result or "").strip() or "; ".join(result.errors or ()) or result.subtype
    return _of_status(result.api_error_status, native, named, api=result.terminal_reason == "api_error")


def of_retry(status: object, said: object) -> HarnessError:
    """The fault for which the program asks the model again."""
    code = status if isinstance(status, int) else None
    if code is None:
        return HarnessError("connection", "no answer came from the model, or it broke off", retryable=True)
    return _of_status(code, f"the model answered {code} ({said})", api=True)


def of_exception(error: BaseException, tail: StderrTail) -> HarnessError:
    """The fault for what the SDK raised. For a program that ended, its last words on standard error are in it."""
    match error:
        case HarnessError():
            return error
        case ResultError():
            return _refused("; ".join(error.errors) or error.result or str(error))
        case ProcessError():
            words = str(tail)
            if "already in use" in words:
                return _refused(words)
            how = f"exit code {error.exit_code}" if (error.exit_code or 0) >= 0 else f"signal {-error.exit_code}"  # type: ignore[operator]
            return _died(f"Claude Code ended with {how}" + (f": {words}" if words else ""))
        case CLINotFoundError():
            return HarnessError("invalid-request", str(error))
        case CLIConnectionError():
            if "Working directory does not exist" in str(error):
                return HarnessError("invalid-request", str(error))
            return _died(str(error))
        case CLIJSONDecodeError():
            return HarnessError("unknown", f"Claude Code sent what is no message: {error.original_error}")
        case TimeoutError() | asyncio.CancelledError():
            return HarnessError("timeout", "Claude Code did not answer in time", retryable=True)
        case _:
            return HarnessError("unknown", f"{type(error).__name__}: {error}")


def _of_status(status: int | None, native: str, named: str | None = None, *, api: bool) -> HarnessError:
    kind = _kind(status, native, named, api)
    return HarnessError(kind, native, status=status, retryable=kind in RETRYABLE)


def _kind(status: int | None, native: str, named: str | None, api: bool) -> ErrorKind:
    match status:
        case 401 | 403:
            return "authentication"
        case 429:
            return "rate-limit"
        case 408 | 504:
            return "timeout"
        case int() if status >= 500:
            return "overloaded"
        case int() if 400 <= status < 500:
            return "invalid-request"
    if api and _TIMED_OUT.search(native):
        return "timeout"
    if api and _UNREACHED.search(native):
        return "connection"
    return _NAMED.get(named or "", "unknown")


def _refused(native: str) -> HarnessError:
    return HarnessError("invalid-request", native)


def _died(native: str) -> HarnessError:
    return HarnessError("process-died", native, retryable=True)
