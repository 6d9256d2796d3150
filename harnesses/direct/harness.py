"""The harness: what it can carry, whether the `openai` package is here, and how a session is opened.

The package is imported by `endpoint`, in a thread, when the first session opens.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from buzz_author.harness import Capabilities, HarnessError, Probe, SessionHost, SessionSpec
from buzz_author.json_values import JsonObject
from harnesses.direct.settings import DirectSettings
from harnesses.stdio.faults import refused

if TYPE_CHECKING:
    from harnesses.direct.protocols import Protocol
    from harnesses.direct.session import DirectSession

PACKAGE: Final = "openai"
INSTALL: Final = "install it with: pip install 'buzz-agents[direct]'"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class DirectHarness:
    """Any endpoint that speaks OpenAI's protocols, from this process."""

    id = "direct"
    title = "direct"
    capabilities = Capabilities(
        carries_sections=True,
        steer="folds",
        tools="in-process",
        resume=True,
        key_variables=("OPENAI_API_KEY",),
        inherits=(),
    )

    def __init__(
        self,
        *,
        settings: JsonObject | None = None,
        log: logging.Logger | None = None,
        environ: Mapping[str, str] | None = None,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        """`settings` are those of `DirectSettings`; raises `BuzzError` for one that is wrong. `environ` is the host's
        environment, of which only the key of the model is read; `new_id` makes ids of conversations."""
        self._settings = DirectSettings.read(settings or {})
        self._log = log or logging.getLogger(__name__)
        self._environ = os.environ if environ is None else environ
        self._new_id = new_id
        self._spoken: dict[str | None, Protocol] = {}
        """Which protocol an endpoint is known to speak."""

    async def probe(self) -> Probe:
        found = importlib.util.find_spec(PACKAGE)
        if found is None or found.origin is None:
            return Probe(fault=f"the package {PACKAGE} is not installed; {INSTALL}")
        from importlib.metadata import version

        return Probe(version=f"{PACKAGE} {version(PACKAGE)}", path=Path(found.origin).parent)

    def encode(self, text: str, spec: SessionSpec) -> str:
        """The text itself."""
        return text

    async def open(self, spec: SessionSpec, host: SessionHost) -> DirectSession:
        """Begin a conversation, or go on with one. Raises `HarnessError`; no request is made."""
        if importlib.util.find_spec(PACKAGE) is None:
            raise refused(f"the package {PACKAGE} is not installed; {INSTALL}")
        if not spec.cwd.is_dir():
            raise refused(f"{spec.cwd}: the working directory is no folder")
        await asyncio.to_thread(importlib.import_module, "harnesses.direct.session")
        from harnesses.direct.endpoint import Endpoint
        from harnesses.direct.session import DirectSession
        from harnesses.direct.transcript import Transcript

        identifier = spec.resume or self._new_id()
        if not _ID.fullmatch(identifier):
            raise refused(f"no conversation is called {identifier!r}")
        try:
            transcript = await asyncio.to_thread(Transcript.at, spec.config_dir, identifier)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise HarnessError("unknown", f"the conversation {identifier} cannot be read: {error}") from error
        if spec.resume is not None and not transcript.items:
            raise refused(f"No conversation found with the id {identifier}")
        endpoint = Endpoint(spec.model_url, self._environ, self._settings.idle_s, self._spoken)
        return DirectSession(spec, host, endpoint, transcript, identifier, self._settings, self._log)
