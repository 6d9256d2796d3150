"""What goes wrong between this process and an endpoint, as one `HarnessError` (HAR-03)."""

from __future__ import annotations

import httpx2
import openai

from buzz_author.harness import HarnessError
from harnesses.direct.protocols import Refused, Unfinished
from harnesses.stdio import faults

CONTEXT_TOO_LONG = "context_length_exceeded"
# An endpoint that does not have a path answers so; one that misses the model may as well.
NOT_THERE = frozenset({404, 405, 501})


def of_exception(error: Exception) -> HarnessError:
    """The fault for what a request raised."""
    match error:
        case HarnessError():
            return error
        case openai.APIStatusError():
            return faults.of_status(error.status_code, _words(error))
        case openai.APITimeoutError() | httpx2.TimeoutException():
            return HarnessError("timeout", "the endpoint did not answer in time", retryable=True)
        case openai.APIConnectionError():
            cause = error.__cause__
            said = str(cause) if cause is not None and str(cause) else str(error)
            return HarnessError("connection", f"the endpoint cannot be reached: {said}", retryable=True)
        case Unfinished() | httpx2.HTTPError():
            return HarnessError("connection", f"the answer broke off: {error}", retryable=True)
        case Refused() | openai.APIError():
            return faults.of_words(str(error))
        case OSError():
            return HarnessError("unknown", f"{error.filename or 'the conversation'}: {error.strerror or error}")
        case _:
            return HarnessError("unknown", f"{type(error).__name__}: {error}")


def too_long(error: Exception) -> bool:
    """Whether the endpoint says that the request holds more than the model can read."""
    return isinstance(error, openai.APIStatusError) and (error.status_code == 413 or error.code == CONTEXT_TOO_LONG)


def not_there(error: Exception) -> bool:
    """Whether the endpoint may not speak this protocol."""
    return isinstance(error, openai.APIStatusError) and error.status_code in NOT_THERE


def _words(error: openai.APIStatusError) -> str:
    body = error.body
    said = body.get("message") if isinstance(body, dict) else None
    return f"the endpoint answered {error.status_code}: {said or error.message}"
