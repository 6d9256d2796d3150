"""The calls about the programs of harnesses: what can be installed, how one logs in, and whether what is here works.

They are among `CALLS`. Installing itself is done by whoever asks, in the folder that the host names: it is a matter of
files, lasts for minutes, and has to end with the command that began it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from buzz_author.harness import NpmProgram
from buzz_host.services.call import HostCall

if TYPE_CHECKING:
    from buzz_host.services.examination import Examination
    from buzz_host.services.host import Host


@attrs.frozen
class Programs:
    """The folder of programs of a home, and what each harness would have installed there (None: nothing), by id."""

    folder: Path
    known: Mapping[str, NpmProgram | None]


@attrs.frozen(kw_only=True)
class ListPrograms(HostCall[Programs]):
    """What can be installed; each of `named` must be a harness."""

    name = "harnesses.programs"
    named: tuple[str, ...] = ()

    @staticmethod
    def answer_type() -> object:
        return Programs

    async def answer(self, host: Host) -> Programs:
        from buzz_author.harness import Installable

        await host.plugins.refresh()
        for each in self.named:
            host.plugins.harness(each)
        return Programs(
            host.programs.folder,
            {
                identifier: harness.program if isinstance(harness, Installable) else None
                for identifier, harness in host.plugins.harnesses().items()
            },
        )


@attrs.frozen
class Login:
    """How a person logs in: what is run, with the whole of its environment, and whether a login is kept already."""

    title: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    logged_in: bool


@attrs.frozen(kw_only=True)
class LoginOf(HostCall[Login]):
    """How a person logs the program of `harness` in; the login is kept in the home."""

    name = "harnesses.login"
    harness: str

    @staticmethod
    def answer_type() -> object:
        return Login

    async def answer(self, host: Host) -> Login:
        from buzz_author.errors import BuzzError
        from buzz_author.harness import LogsIn

        await host.plugins.refresh()
        harness = host.plugins.harness(self.harness)
        if not isinstance(harness, LogsIn):
            keys = " or ".join(harness.capabilities.key_variables)
            instead = f": set {keys}" if keys else ""
            raise BuzzError(f"{harness.title} has no login that Buzz knows of{instead}")
        folder = host.home.folder(host.home.data / harness.id)
        host.home.folder(folder / "tmp")
        command = await asyncio.to_thread(harness.login, folder)
        return Login(harness.title, command.argv, command.env, harness.logged_in(folder))


@attrs.frozen(kw_only=True)
class ExamineHarness(HostCall["Examination"]):
    """One rehearsed turn through the real program of `harness`, and what of it arrived."""

    name = "harnesses.examine"
    harness: str

    @staticmethod
    def answer_type() -> object:
        from buzz_host.services.examination import Examination

        return Examination

    async def answer(self, host: Host) -> Examination:
        from buzz_host.services.examination import examine

        return await examine(host, self.harness)


ALL = (ListPrograms, LoginOf, ExamineHarness)
