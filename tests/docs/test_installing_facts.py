"""What docs/installing.md says in numbers and lists is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from buzz_host.plugins.files import DEPTH_MAX, FILES_MAX, TOTAL_MAX_BYTES
from buzz_host.plugins.install.archives import RATIO_MAX, SUFFIXES, UNPACKED_MAX_BYTES
from buzz_host.plugins.install.checking import check
from buzz_host.plugins.install.fetching import Fetched
from buzz_host.plugins.install.git import GIT_DEADLINE_S, PROTOCOLS
from buzz_host.plugins.install.listing import ENTRIES_MAX, PATH_MAX_BYTES
from buzz_host.plugins.install.lockfile import Provenance
from tests.quality.tree import ROOT

TEXT = " ".join((ROOT / "docs" / "installing.md").read_text(encoding="utf-8").split())
MIB = 1024 * 1024


@pytest.mark.req("CAT-02")
@pytest.mark.parametrize(
    "words",
    [
        f"more than {ENTRIES_MAX:,} entries, {FILES_MAX} files or {TOTAL_MAX_BYTES // MIB} MiB in a plugin",
        f"{DEPTH_MAX} folders deep, paths of more than {PATH_MAX_BYTES} bytes",
        f"unpack to more than {UNPACKED_MAX_BYTES // MIB} MiB, or to {RATIO_MAX} times their size",
        f"asks nobody, and has {GIT_DEADLINE_S:g} s",
    ],
)
def test_the_limits_are_those_of_the_code(words: str) -> None:
    assert words in TEXT


@pytest.mark.req("CAT-01")
def test_the_forms_and_protocols_are_those_of_the_code() -> None:
    row = re.search(r"\| an archive \| ([^|]*) on this disk \|", TEXT)
    assert row is not None
    assert set(re.findall(r"`([^`]+)`", row[1])) == set(SUFFIXES)
    assert set(re.findall(r"`([a-z]+):///?…`", TEXT)) == set(PROTOCOLS)


@pytest.mark.req("CAT-01")
def test_what_is_not_carried_is_what_the_code_says() -> None:
    manifest = (
        b'api = 1\nname = "a"\nneeds = ["x"]\n[hooks]\ningest = "a"\n[env]\nA = "b"\n[grants]\na = true\n'
        b'[[requires]]\nbinary = "x"\n'
    )
    files = {
        "plugin.toml": manifest, "plugin.py": b"", "requirements.txt": b"a", "skills/a/SKILL.md": b"", "mcp.json": b"",
    }  # fmt: skip
    found = {each.what for each in check(Fetched(Provenance("folder", "/a"), Path("a"), files)).not_carried}
    (said,) = re.findall(r"each with `not carried yet`: ([^.]*(?:\.txt)[^.]*)\.", TEXT)
    words = {word.strip("`[] ") for word in said.split(",")} - {'isolation = "process"'}
    assert words == (found - {"tools"}) | {"MCP servers"}
