"""No committed file holds what belongs to one machine: addresses of registries and downloads, paths, credentials.

A file with such a line works in one place only, and tells strangers about that place.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.quality.tree import ROOT, committed_files, relative

# Each pattern is written so that it does not match itself.
FORBIDDEN = {
    "a resolved download": re.compile(r'"resolved": *"https?:'),
    "the address of a registry": re.compile(r"""(?:registry|index[-_]url)[ ="':]+https?:""", re.IGNORECASE),
    "the name of a registry's host": re.compile(r"(?:pypi|pythonhosted|npmjs)[.](?:org|com)", re.IGNORECASE),
    "the address of a download": re.compile(r'https?://[^ "]*(?:[.]whl|[.]tgz|[.]tar[.]gz|/simple)', re.IGNORECASE),
    "a path of one machine": re.compile(r"(?:^|[^.a-z0-9_-])/(?:work|farm|root|home/[a-z])[/a-z]", re.IGNORECASE),
    "a key": re.compile(r"sk-ant-[a-z]+[0-9]{2}-[A-Za-z0-9_-]{20}|-----BEGIN [A-Z ]*PRIVATE KEY"),
}
LOCK_FILES = frozenset({"package-lock.json", "poetry.lock", "uv.lock", "yarn.lock", "pnpm-lock.yaml", "Pipfile.lock"})


def forbidden_lines(text: str) -> list[str]:
    """Each line that may not be committed: its number, why, and its beginning."""
    return [
        f"{number}: {why}: {line.strip()[:100]}"
        for number, line in enumerate(text.split("\n"), start=1)
        for why, pattern in FORBIDDEN.items()
        if pattern.search(line)
    ]


@pytest.mark.parametrize("file", committed_files(), ids=relative)
def test_a_committed_file_names_no_machine(file: Path) -> None:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # a picture or a recording
        return
    assert forbidden_lines(text) == []


def test_no_lock_file_with_download_addresses_is_committed() -> None:
    assert [relative(file) for file in committed_files() if file.name in LOCK_FILES] == []


@pytest.mark.parametrize(
    "line",
    [
        "index-url = " + "https://mirror.example/",
        "see https:" + "//files.example/a-1.0.whl",
        "cd " + "/" + "work/main",
        "open " + "/" + "home/someone/x",
        '"resolved": ' + '"https://mirror.example/a"',
    ],
)
def test_a_forbidden_line_is_found(line: str) -> None:
    assert forbidden_lines(f"first\n{line}\n")


@pytest.mark.parametrize(
    "line", ["#!/usr/bin/env bash", "~/.buzz/homework/x", "https://example.org/docs", "/rehearsal"]
)
def test_an_ordinary_line_passes(line: str) -> None:
    assert forbidden_lines(line) == []


def test_there_are_committed_files() -> None:
    assert ROOT / "pyproject.toml" in committed_files()
