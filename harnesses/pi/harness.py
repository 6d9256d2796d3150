"""The harness: what it can carry, whether its program is here, and how a session is opened."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from buzz_author.framing import LINE_MAX_BYTES
from buzz_author.harness import Capabilities, FoundProgram, LoginCommand, Probe, SessionHost, SessionSpec
from buzz_author.json_values import JsonObject
from buzz_author.plugins import Programs
from harnesses.pi import program as pi
from harnesses.stdio import faults
from harnesses.stdio.probing import probed

if TYPE_CHECKING:
    from harnesses.pi.session import PiSession

IDLE_S: Final = 300.0


class PiHarness:
    """Pi in its RPC mode."""

    id = "pi"
    title = "Pi"
    program = pi.PROGRAM
    capabilities = Capabilities(
        carries_sections=True,
        steer="folds",
        tools="rpc",
        resume=True,
        permission_requests=True,
        key_variables=pi.MODEL_KEYS,
        inherits=pi.PASSED_ON,
    )

    def __init__(
        self,
        *,
        programs: Programs,
        settings: JsonObject | None = None,
        log: logging.Logger | None = None,
        environ: Mapping[str, str] | None = None,
        idle_s: float = IDLE_S,
        limit_bytes: int = LINE_MAX_BYTES,
    ) -> None:
        """`programs` knows where the program is; `settings` may name a `model`, the `api` of an endpoint and its
        `context_tokens`; `environ` is the host's environment, of which little is passed on; a model that says nothing
        for `idle_s` seconds has failed; `limit_bytes` bounds a line of the program."""
        self._programs = programs
        self._settings = settings or {}
        self._log = log or logging.getLogger(__name__)
        self._environ = os.environ if environ is None else environ
        self._idle_s = idle_s
        self._limit_bytes = limit_bytes

    async def probe(self) -> Probe:
        return await probed(self._programs.find(self.id, self.program), self.title, self.id)

    def encode(self, text: str, spec: SessionSpec) -> str:
        """The text itself: what a leading `/` could call (commands, skills, templates) is not there to be called."""
        return text

    def login(self, config_dir: Path) -> LoginCommand:
        """The program itself, where `/login` keeps the login in `config_dir`."""
        environment = pi.own_environment(config_dir, self._environ)
        del environment["PI_OFFLINE"]  # a login asks its provider
        return LoginCommand(self._found().argv, environment)

    def logged_in(self, config_dir: Path) -> bool:
        """Whether somebody has logged in there: the program's file is there, empty, from its first start on."""
        try:
            return bool(json.loads((pi.agent_dir(config_dir) / pi.LOGIN_FILE).read_bytes()))
        except (OSError, ValueError):
            return False

    async def open(self, spec: SessionSpec, host: SessionHost) -> PiSession:
        """Start the program, or resume one of its conversations. Raises `HarnessError`."""
        from harnesses.pi.session import PiSession

        return await PiSession.start(
            spec,
            host,
            self._found(),
            environ=self._environ,
            settings=self._settings,
            idle_s=self._idle_s,
            limit_bytes=self._limit_bytes,
            log=self._log,
        )

    def _found(self) -> FoundProgram:
        found = self._programs.find(self.id, self.program)
        if found is None:
            raise faults.refused(f"{self.title} is not installed; install it with: buzz harness install {self.id}")
        return found
