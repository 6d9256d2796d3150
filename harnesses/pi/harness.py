"""The harness: what it can carry, whether its program is here, and how a session is opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from buzz_author.harness import Capabilities, LoginCommand, SessionHost, SessionSpec
from harnesses.pi import program as pi
from harnesses.stdio.installed import InstalledHarness

if TYPE_CHECKING:
    from harnesses.pi.session import PiSession


class PiHarness(InstalledHarness):
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
