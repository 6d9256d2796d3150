"""A reader who does what a page says, from its first line to its last, in a home and a folder of their own.

Files are written where the page says, commands are typed as they stand, and what the page shows must appear. In what
is shown, `…` stands for text that differs each time, and a line of `…` alone for any number of lines. Ids, hashes and
times differ as well: the page's own stand for the real ones, the same for the same each time, and in commands too.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import attrs

from tests.docs.pages import Block
from tests.quality.tree import ROOT

COMMAND_TIMEOUT_S = 60
# Nothing else is run on behalf of a page.
PROGRAMS = ("buzz", "cat", "cp", "git", "mkdir")
# What pages call the folder that the reader is in. As long as the name of a temporary folder, so that sizes agree.
WORKING_DIRECTORY = "/srv/web-shop"
# What is never the same twice.
VARYING = {
    "uuid": r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "hash": r"[0-9a-f]{64}",
    "short_hash": r"[0-9a-f]{12}",
    "id": r"[0-9a-f]{8}",
    "instant": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)?",
}
# How a page's own look where a word or a number could be meant: pages show ids with a letter and a digit in them.
_IN_A_PAGE = VARYING | {
    "short_hash": rf"{VARYING['short_hash']}(?=…)",
    "id": rf"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9]){VARYING['id']}\b",
}
TOKEN = re.compile("|".join([*(f"(?P<{kind}>{pattern})" for kind, pattern in _IN_A_PAGE.items()), "(?P<any>…)"]))


@attrs.frozen
class Step:
    """One command with the output that the page shows for it; None where it shows none."""

    block: Block
    command: str
    shown: str | None


def steps(block: Block) -> Iterator[Step]:
    """The commands of a console block."""
    pieces = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert pieces[0] == "", f"{block}: a console block begins with a command"
    for piece in pieces[1:]:
        command, _, shown = re.sub(r"\\\n", "", piece).partition("\n")
        yield Step(block, command, shown.rstrip("\n") or None)


class Reader:
    """One reader of one page; a context manager, which takes the folders away."""

    def __init__(self) -> None:
        self.cwd = Path(tempfile.mkdtemp(prefix="", dir="/tmp"))
        assert len(str(self.cwd)) == len(WORKING_DIRECTORY)
        self.home = Path(tempfile.mkdtemp())
        # The example plugins, where a checkout has them.
        shutil.copytree(ROOT / "docs" / "examples", self.cwd / "docs" / "examples")
        self.printed = ""
        self.real: dict[str, str] = {}
        self._background: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._background:
            process.terminate()
            process.communicate(timeout=COMMAND_TIMEOUT_S)
        shutil.rmtree(self.cwd)
        shutil.rmtree(self.home)

    def do(self, block: Block) -> None:
        """What the page asks for at this block."""
        if "file" in block.info:
            self._write(block)
        if block.language == "console":
            for step in steps(block):
                self._type(step)
        elif "run" in block.info:
            self._run(block)
        elif "output" in block.info:
            self.compare(block.text.rstrip("\n"), str(block))

    def compare(self, shown: str, where: str) -> None:
        """Assert that what was printed is what the page shows."""
        match = re.fullmatch(pattern_of(shown, self.real), self.printed)
        assert match is not None, f"{where}\nprinted\n{self.printed}\n\nthe page shows\n{shown}"
        for token, group in zip(TOKEN.finditer(shown), match.groups(), strict=True):
            if token["any"] is None:
                # The same literal of the page is the same thing each time.
                assert self.real.setdefault(token[0], group) == group, f"{where}: {token[0]} is {group} now"

    def _write(self, block: Block) -> None:
        name = block.info["file"]
        path = self.home / name[2:] if name.startswith("~/") else self.cwd / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")

    def _type(self, step: Step) -> None:
        command = step.command
        for literal, real in self.real.items():
            command = command.replace(literal, real)
        assert command.split()[0] in PROGRAMS, f"{step.block}: {command}: pages run {', '.join(PROGRAMS)} only"
        if "background" in step.block.info:
            self._start(command)
            if step.shown is not None:
                self.compare(step.shown, f"{step.block}: $ {command}")
            return
        code = self._execute(["bash", "-c", command])
        wanted = int(step.block.info.get("exit", "0"))
        assert code == wanted, f"{step.block}: $ {command}\nended with {code}, not {wanted}:\n{self.printed}"
        if step.shown is not None:
            self.compare(step.shown, f"{step.block}: $ {command}")

    def _run(self, block: Block) -> None:
        path = self.cwd / f"block_{block.line}.py"
        path.write_text(block.text, encoding="utf-8")
        code = self._execute([sys.executable, "-W", "error", str(path)])
        assert code == 0, f"{block} ended with {code}:\n{self.printed}"

    def _start(self, command: str) -> None:
        """A command that goes on until the page is read; what it has printed is its first line."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.cwd,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._background.append(process)
        assert process.stdout is not None
        self._keep(process.stdout.readline())

    def _keep(self, octets: bytes) -> None:
        self.printed = octets.decode("utf-8").rstrip("\n").replace(str(self.cwd), WORKING_DIRECTORY)

    def _execute(self, argv: list[str]) -> int:
        done = subprocess.run(
            argv,
            cwd=self.cwd,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        self._keep(done.stdout)
        return done.returncode

    def _environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(ROOT),  # the code of this tree, wherever an installed one is
        }


def pattern_of(shown: str, real: dict[str, str]) -> str:
    """The pattern of the outputs that `shown` stands for, with a group for each thing that differs each time.

    `real` has what literals of the page stand for already.
    """
    pattern, position = "", 0
    for token in TOKEN.finditer(shown):
        pattern += re.escape(shown[position : token.start()])
        kind = token.lastgroup or ""
        if token[0] in real:
            pattern += f"({re.escape(real[token[0]])})"
        elif kind == "any":
            pattern += "((?s:.*?))" if _is_a_line(shown, token) else "([^\\n]*?)"
        else:
            pattern += f"({VARYING[kind]})"
        position = token.end()
    return pattern + re.escape(shown[position:])


def _is_a_line(text: str, token: re.Match[str]) -> bool:
    before, after = text[: token.start()], text[token.end() :]
    return (not before or before.endswith("\n")) and (not after or after.startswith("\n"))
