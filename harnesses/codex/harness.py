"""The harness: what it can carry, whether its program is here, and how a session is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from buzz_author.harness import (
    Capabilities,
    LoginCommand,
    SessionHost,
    SessionSpec,
)
from harnesses.codex import program as codex
from harnesses.codex.encode import encoded
from harnesses.stdio.environment import passed_on
from harnesses.stdio.installed import InstalledHarness

if TYPE_CHECKING:
    from harnesses.codex.session import CodexSession


class CodexHarness(InstalledHarness):
    """Codex through its app-server."""

    id = "codex"
    title = "Codex"
    program = codex.PROGRAM
    capabilities = Capabilities(
        carries_sections=True,
        steer="folds",
        tools="mcp",
        resume=True,
        permission_requests=True,
        key_variables=codex.MODEL_KEYS,
        inherits=codex.PASSED_ON,
    )

    def encode(self, text: str, spec: SessionSpec) -> str:
        """The text, with every `$name` kept from pulling in a skill."""
        return encoded(text)

    def login(self, config_dir: Path) -> LoginCommand:
        """The program's own login, kept in `config_dir`."""
        environment = passed_on(self._environ, config_dir) | {"CODEX_HOME": str(config_dir)}
        return LoginCommand((*self._found().argv, "login"), environment)

    def logged_in(self, config_dir: Path) -> bool:
        """Whether somebody has logged in there."""
        return (config_dir / codex.LOGIN_FILE).is_file()

    async def open(self, spec: SessionSpec, host: SessionHost) -> CodexSession:
        """Start the program, or resume one of its conversations. Raises `HarnessError`."""
        from harnesses.codex.session import CodexSession

        found = self._found()
        spec = self._with_model(spec)
        environment = codex.environment(spec, self._environ)
        return await CodexSession.start(spec, host, found, environment, self._idle_s, self._limit_bytes, self._log)
