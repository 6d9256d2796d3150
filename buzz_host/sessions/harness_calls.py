"""Calls into a harness: whatever somebody's code raises comes out as a `HarnessError` that names it (HAR-02)."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from buzz_author.errors import describe
from buzz_author.harness import Harness, HarnessError, SessionSpec
from buzz_host.settings.files import surroundings


@contextmanager
def harness_call(harness: Harness, call: str) -> Iterator[None]:
    """Turn what a call into `harness` raises into a `HarnessError` that names it; cancelling passes."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        raise HarnessError("unknown", f"the harness '{harness.id}' failed in {call}: {_placed(error)}") from error


def encoded(harness: Harness, text: str, spec: SessionSpec) -> str:
    """`text` as `harness` wants it handed over. Raises `HarnessError` where its `encode` fails, or gives no text."""
    with harness_call(harness, "encode"):
        made: object = harness.encode(text, spec)
    if not isinstance(made, str):
        raise HarnessError(
            "unknown", f"the harness '{harness.id}' failed in encode: it returned {type(made).__name__}, not str"
        )
    return made


def _placed(error: Exception) -> str:
    if isinstance(error, OSError) and (line := surroundings(error)) is not None:
        return line  # a full disk, say: which file it was helps, and not where in the code
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost frame is where it happened, be it in a library; the file's name is enough for its author.
    return f"{describe(error)} ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else describe(error)
