"""Reading a record back from disk: what the server received, as bytes.

The reader trusts nothing: each body is checked against the hash in its line, and parsed again from the raw bytes,
so that what is compared with the ledger is what came off the socket.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import attrs

from buzz_author.errors import BuzzError
from buzz_host.rehearsal.server import dialect_at


class RehearsalError(BuzzError):
    """The rehearsal server did not start, or its record cannot be read."""


@attrs.frozen
class RecordedRequest:
    """One request as the server received it; `body` is None where it was no JSON."""

    n: int
    method: str
    path: str
    raw: bytes
    body: object

    @property
    def newest_user_text(self) -> str:
        """The text of the newest user message's last text block, as sent; empty where the request has none."""
        return newest_user_text(self.body, path=self.path)


def newest_user_text(body: object, *, path: str = "/v1/messages") -> str:
    """The newest user text in a request body of the protocol that is spoken at `path`; empty where there is none.

    What tools gave back, and text blocks that belong to a tool's result, are no user text.
    """
    dialect = dialect_at(path)
    found = dialect.newest_user_text(body) if dialect is not None else None
    return found.text if found is not None else ""


def read_record(path: Path, *, run: str | None = None) -> list[RecordedRequest]:
    """The requests in a record file, in the order in which they came; of one server only, if `run` is given.

    Raises `RehearsalError` with file and line for a file that cannot be read, a line that is no record, and a
    body that does not match its hash.
    """
    try:
        octets = path.read_bytes()
    except OSError as error:
        raise RehearsalError(f"{path}: the record cannot be read: {error.strerror}") from None
    found = []
    for number, line in enumerate(octets.split(b"\n"), start=1):
        if not line:
            continue
        try:
            request = _request(line, run)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RehearsalError(f"{path}:{number}: not a line of a record: {error}") from None
        if request is not None:
            found.append(request)
    return found


def _request(line: bytes, run: str | None) -> RecordedRequest | None:
    fields = json.loads(line)
    if "event" in fields or (run is not None and fields["run"] != run):
        return None
    raw = fields["raw"].encode("utf-8") if "raw" in fields else base64.b64decode(fields["raw_base64"], validate=True)
    if hashlib.sha256(raw).hexdigest() != fields["sha256"]:
        raise ValueError(f"the body of request {fields['n']} does not match its sha256")
    try:
        body = json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        body = None
    return RecordedRequest(n=fields["n"], method=fields["method"], path=fields["path"], raw=raw, body=body)
