"""Modules stay short enough to be read once, and say in their first lines what they are."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.quality.tree import PACKAGES, ROOT, modules, relative

MODULE_MAX_LINES = 500


@pytest.mark.parametrize("module", modules(), ids=relative)
def test_a_module_is_at_most_500_lines(module: Path) -> None:
    lines = len(module.read_text(encoding="utf-8").split("\n"))
    assert lines <= MODULE_MAX_LINES, f"{relative(module)} has {lines} lines: which part is a room of its own?"


@pytest.mark.parametrize("module", modules(), ids=relative)
def test_a_module_says_what_it_is(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body, f"{relative(module)} has no docstring"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_hands_out_its_types(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
