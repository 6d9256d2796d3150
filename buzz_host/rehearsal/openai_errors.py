"""The error body that both OpenAI protocols share."""

from __future__ import annotations

ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
}
ERROR_CODES = {401: "invalid_api_key", 429: "rate_limit_exceeded", 503: "server_is_overloaded"}


def failure(status: int, message: str) -> object:
    """The protocols' error object; an unlisted status is the client's fault below 500, the server's from there."""
    kind = ERROR_TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": ERROR_CODES.get(status)}}
