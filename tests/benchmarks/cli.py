"""The speed of the command line: whole processes, from the start of the interpreter to its end."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from buzz_host.examples import examples_folder
from buzz_host.plugins.linking import link
from buzz_host.settings import Home
from tests.benchmarks.measuring import compare_programs
from tests.benchmarks.row import Row

# The console script, run by this interpreter.
BUZZ = str(Path(sys.executable).with_name("buzz"))
NOTHING = ["-c", "pass"]
PEER = "python -c pass"


def rows() -> Iterator[Row]:
    yield compare_programs("buzz --help", [BUZZ, "--help"], NOTHING, peer_name=PEER, at_most=6)
    with tempfile.TemporaryDirectory(prefix="buzz-bench-") as folder:
        fresh, furnished = Home(Path(folder) / "fresh"), Home(Path(folder) / "furnished")
        plugins = sorted(each for each in examples_folder().iterdir() if each.is_dir())
        for each in plugins:
            link(furnished, each)
        yield compare_programs("buzz preview", _preview(fresh), NOTHING, peer_name=PEER, at_most=15)
        yield compare_programs(
            f"buzz preview, {len(plugins)} plugin folders",
            _preview(furnished),
            NOTHING,
            peer_name=PEER,
            note="reading a plugin.toml brings cattrs in",
        )


def _preview(home: Home) -> list[str]:
    # As JSON: the notes for people would go to this report's own stderr.
    return [BUZZ, "--home", str(home.root), "preview", "--json", "hello"]
