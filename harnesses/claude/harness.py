"""The harness: what it can carry, whether its program is here, and how a session is opened.

The SDK is imported by `session`, which is imported when the first session opens.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from buzz_author.harness import Capabilities, HarnessError, Probe, SessionHost, SessionSpec
from harnesses.claude import program
from harnesses.stdio.environment import PASSED_ON

if TYPE_CHECKING:
    from harnesses.claude.session import ClaudeSession

SDK_LOGGER: Final = "claude_agent_sdk"


class ClaudeHarness:
    """Claude Code through claude-agent-sdk."""

    id = "claude"
    title = "Claude Code"
    capabilities = Capabilities(
        carries_sections=True,
        steer="folds",
        tools="in-process",
        resume=True,
        permission_requests=True,
        key_variables=program.MODEL_KEYS,
        inherits=PASSED_ON,
    )

    def __init__(
        self,
        *,
        log: logging.Logger | None = None,
        environ: Mapping[str, str] | None = None,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        """`environ` is the host's environment, of which little is passed on; `new_id` makes ids of conversations."""
        self._log = log or logging.getLogger(__name__)
        self._environ = os.environ if environ is None else environ
        self._new_id = new_id

    async def probe(self) -> Probe:
        return program.probe()

    def encode(self, text: str, spec: SessionSpec) -> str:
        """The text itself: the program is told to take prompts verbatim."""
        return text

    async def open(self, spec: SessionSpec, host: SessionHost) -> ClaudeSession:
        """Start the program, or resume one of its conversations. Raises `HarnessError`."""
        found = program.probe()
        if found.path is None or found.fault is not None:
            raise HarnessError("invalid-request", found.fault or "there is no Claude Code program")
        try:
            str(spec.cwd).encode("utf-8")
        except UnicodeEncodeError:
            raise HarnessError(
                "invalid-request", f"{spec.cwd}: Claude Code cannot work in a folder whose path is not UTF-8"
            ) from None
        _route_sdk_log(self._log)
        # In a thread: the import takes seconds, and other sessions go on meanwhile.
        module = await asyncio.to_thread(importlib.import_module, "harnesses.claude.session")
        environment = program.environment(spec, self._environ)
        native_id = spec.resume or self._new_id()
        session: ClaudeSession = await module.ClaudeSession.start(
            spec, host, found.path, environment, native_id, self._log
        )
        return session


class _Route(logging.Handler):
    """What the SDK logs goes to the plugin's log, as detail: each fault of it is an event of ours already."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        self.log.debug("sdk, %s: %s", record.levelname.lower(), record.getMessage())


def _route_sdk_log(log: logging.Logger) -> None:
    """Keep the SDK's own messages off the terminal: without a handler, Python writes them to standard error."""
    logger = logging.getLogger(SDK_LOGGER)
    logger.propagate = False
    for handler in [each for each in logger.handlers if isinstance(each, _Route)]:
        logger.removeHandler(handler)
    logger.addHandler(_Route(log))
