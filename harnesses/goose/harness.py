"""The harness: what it can carry, whether its program is here, and how a session is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from buzz_author.framing import LINE_MAX_BYTES
from buzz_author.harness import Capabilities, FoundProgram, LoginCommand, Probe, SessionHost, SessionSpec
from buzz_author.json_values import JsonObject
from buzz_author.plugins import Programs
from harnesses.goose import program as goose
from harnesses.goose.encode import encoded
from harnesses.stdio import faults
from harnesses.stdio.environment import passed_on
from harnesses.stdio.probing import probed

if TYPE_CHECKING:
    from harnesses.goose.session import GooseSession

IDLE_S: Final = 300.0
NO_MODEL: Final = (
    "goose needs the name of a model: `model` in the agent's file, or in [plugins.goose] of buzz.toml; "
    "or give it a provider and a model by: buzz harness login goose"
)


class GooseHarness:
    """goose over ACP."""

    id = "goose"
    title = "goose"
    program = goose.PROGRAM
    capabilities = Capabilities(
        carries_sections=True,
        steer="folds",
        tools="mcp",
        resume=True,
        permission_requests=True,
        key_variables=goose.MODEL_KEYS,
        inherits=goose.PASSED_ON,
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
        """`programs` knows where the program is; `settings` may name a `model`; `environ` is the host's environment, of
        which little is passed on; a model that says nothing for `idle_s` seconds has failed; `limit_bytes` bounds a
        line of the program."""
        self._programs = programs
        self._settings = settings or {}
        self._log = log or logging.getLogger(__name__)
        self._environ = os.environ if environ is None else environ
        self._idle_s = idle_s
        self._limit_bytes = limit_bytes

    async def probe(self) -> Probe:
        return await probed(self._programs.find(self.id, self.program), self.title, self.id)

    def encode(self, text: str, spec: SessionSpec) -> str:
        """The text, kept from being a command of the program's."""
        return encoded(text)

    def login(self, config_dir: Path) -> LoginCommand:
        """The program's own configuration of a provider, kept in `config_dir`."""
        environment = passed_on(self._environ, config_dir) | goose.QUIET | {"GOOSE_PATH_ROOT": str(config_dir)}
        return LoginCommand((*self._found().argv, "configure"), environment)

    def logged_in(self, config_dir: Path) -> bool:
        """Whether a provider is configured there."""
        try:
            return "GOOSE_PROVIDER" in (config_dir / goose.CONFIG_FILE).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False

    async def open(self, spec: SessionSpec, host: SessionHost) -> GooseSession:
        """Start the program, or resume one of its conversations. Raises `HarnessError`."""
        from harnesses.goose.session import GooseSession

        found = self._found()
        named = self._settings.get("model")
        if spec.model is None and isinstance(named, str):
            spec = attrs.evolve(spec, model=named)
        if spec.model is None and spec.model_url is None and not self.logged_in(spec.config_dir):
            raise faults.refused(NO_MODEL)
        environment = goose.environment(spec, self._environ)
        return await GooseSession.start(spec, host, found, environment, self._idle_s, self._limit_bytes, self._log)

    def _found(self) -> FoundProgram:
        found = self._programs.find(self.id, self.program)
        if found is None:
            raise faults.refused(f"{self.title} is not installed; install it with: buzz harness install {self.id}")
        return found
