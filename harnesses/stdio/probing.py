"""What is installed, for harnesses whose program Buzz can fetch: files are looked at; one on the PATH is asked."""

from __future__ import annotations

import asyncio
import re

from buzz_author.harness import FoundProgram, Probe

VERSION_DEADLINE_S = 5.0
_VERSION = re.compile(r"\d+(?:\.\d+)+\S*")


async def probed(found: FoundProgram | None, title: str, harness: str) -> Probe:
    """The probe of a program; without one, the fault says how to install it."""
    if found is None:
        return Probe(fault=f"{title} is not installed; install it with: buzz harness install {harness}")
    if found.version is not None:
        return Probe(version=found.version, path=found.path)
    try:
        process = await asyncio.create_subprocess_exec(
            *found.argv,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), VERSION_DEADLINE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            return Probe(path=found.path, fault=f"{found.path} does not tell its version")
    except OSError as error:
        return Probe(path=found.path, fault=f"{found.path} cannot be run: {error.strerror}")
    version = _VERSION.search(said.decode("utf-8", "replace"))
    return Probe(version=version.group() if version else None, path=found.path)
