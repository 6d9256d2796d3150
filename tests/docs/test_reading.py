"""A new user who does what README and docs say, in their order, gets what they show (issue: done when)."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest

from buzz_host.services.host import Host
from tests.docs.pages import LANGUAGES, PAGES, Block, blocks
from tests.docs.reader import Reader, steps
from tests.quality.tree import ROOT, relative

# The text blocks that show a form, or a piece of something longer: what they show is held against the code elsewhere.
BLOCKS = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
PLUGINS = [block for block in PYTHON if re.search(r"^(async )?def apply\(", block.text, re.MULTILINE)]


def _needs_claude(page: Path) -> bool:
    return bool(
        re.search(r"^\$ buzz .*(--rehearse|demo)|rehearse=True", page.read_text(encoding="utf-8"), re.MULTILINE)
    )


@pytest.mark.req("CLI-01", "OPS-01")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=relative(page), marks=[pytest.mark.claude] if _needs_claude(page) else [])
        for page in PAGES
    ],
)
@pytest.mark.timeout(300)
def test_a_page_can_be_followed_from_its_first_line_to_its_last(page: Path) -> None:
    with Reader() as reader:
        for block in blocks(page):
            reader.do(block)


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_something_is_done_with_every_block(block: Block) -> None:
    assert block.language in LANGUAGES
    assert set(block.info) <= {"background", "exit", "fault", "file", "form", "output", "run", "types"}
    match block.language:
        case "python":
            assert {"file", "run", "types"} & set(block.info)
        case "markdown":
            assert "file" in block.info
        case "text":
            assert {"form", "output"} & set(block.info)
        case "console":
            assert list(steps(block))
        case _:
            pass


@pytest.mark.req("PLG-01")
@pytest.mark.parametrize("block", PLUGINS, ids=str)
def test_each_plugin_of_a_page_starts(block: Block, tmp_path: Path) -> None:
    paths = [_written(each, tmp_path) for each in BLOCKS if each.page == block.page and "file" in each.info]
    path = tmp_path / block.info["file"]
    assert path in paths
    plugin = path.parent if path.name == "plugin.py" else path

    async def faults() -> list[str]:
        async with Host(tmp_path / "home", plugins=[plugin]) as host:
            status = host.plugins.statuses()[plugin.stem]
            assert status.state == ("failed" if "fault" in block.info else "active")
            return [fault.phase for fault in host.plugins.faults() if fault.plugin == plugin.stem]

    assert asyncio.run(faults()) == ([block.info["fault"]] if "fault" in block.info else [])


@pytest.mark.req("HAR-02")
@pytest.mark.parametrize("block", PLUGINS, ids=str)
def test_a_plugin_of_a_page_needs_buzz_author_only(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
        modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
        for module in modules:
            assert module.partition(".")[0] in {"buzz_author", *sys.stdlib_module_names}


@pytest.mark.req("API-02", "PLG-01")
def test_the_python_of_the_pages_passes_mypy_strict(tmp_path: Path) -> None:
    for block in PYTHON:
        folder = tmp_path / re.sub(r"\W", "_", block.page)
        name = block.info.get("file", f"block_{block.line}.py")
        # Beside its own modules, in a package: plugins of folders import each other relatively.
        path = folder / name.replace("-", "_")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        for each in {folder, path.parent}:
            (each / "__init__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", "."],
        cwd=tmp_path, env={"MYPYPATH": str(ROOT), "PATH": "/usr/bin:/bin"}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def _written(block: Block, folder: Path) -> Path:
    path = folder / block.info["file"].replace("~/.buzz/", "home/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")
    return path
