"""The harness: what it can carry, whether its program is here, and how a session is opened."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from buzz_author.harness import Capabilities, LoginCommand, SessionHost, SessionSpec
from harnesses.goose import program as goose
from harnesses.goose.encode import encoded
from harnesses.stdio import faults
from harnesses.stdio.environment import passed_on
from harnesses.stdio.installed import InstalledHarness

if TYPE_CHECKING:
    from harnesses.goose.session import GooseSession

NO_MODEL: Final = (
    "goose needs the name of a model: `model` in the agent's file, or in [plugins.goose] of buzz.toml; "
    "or give it a provider and a model by: buzz harness login goose"
)


class GooseHarness(InstalledHarness):
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
        spec = self._with_model(spec)
        if spec.model is None and spec.model_url is None and not self.logged_in(spec.config_dir):
            raise faults.refused(NO_MODEL)
        environment = goose.environment(spec, self._environ)
        return await GooseSession.start(spec, host, found, environment, self._idle_s, self._limit_bytes, self._log)
