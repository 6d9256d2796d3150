"""What the harnesses have in common whose program Buzz can fetch: where it is, and what a person may set.

A harness of this kind is a subclass with its id, its title, its program, and what is so of that program alone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import ClassVar, Final

import attrs

from buzz_author.framing import LINE_MAX_BYTES
from buzz_author.harness import FoundProgram, NpmProgram, Probe, SessionSpec
from buzz_author.json_values import JsonObject
from buzz_author.plugins import Programs
from harnesses.stdio import faults
from harnesses.stdio.probing import probed

IDLE_S: Final = 300.0


class InstalledHarness:
    """The base of such a harness; `program` is what `buzz harness install` fetches."""

    id: ClassVar[str]
    title: ClassVar[str]
    program: ClassVar[NpmProgram]

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
        """`programs` knows where the program is; `settings` are the plugin's, a `model` among them; `environ` is the
        host's environment, of which little is passed on; a model that says nothing for `idle_s` seconds has failed;
        `limit_bytes` bounds a line of the program."""
        self._programs = programs
        self._settings = settings or {}
        self._log = log or logging.getLogger(type(self).__module__)
        self._environ = os.environ if environ is None else environ
        self._idle_s = idle_s
        self._limit_bytes = limit_bytes

    async def probe(self) -> Probe:
        return await probed(self._programs.find(self.id, self.program), self.title, self.id)

    def _found(self) -> FoundProgram:
        """The program. Raises `HarnessError` where it is not here."""
        found = self._programs.find(self.id, self.program)
        if found is None:
            raise faults.refused(f"{self.title} is not installed; install it with: buzz harness install {self.id}")
        return found

    def _with_model(self, spec: SessionSpec) -> SessionSpec:
        """`spec` with the model of the settings, where the agent's file names none."""
        named = self._settings.get("model")
        return attrs.evolve(spec, model=named) if spec.model is None and isinstance(named, str) else spec
