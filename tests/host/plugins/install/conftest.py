"""Each test has a home in which one honest plugin is installed, and looks at what has become of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.settings import Home
from tests.host.plugins.install.making import asked, everything, folder, plugin, put


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home that does not exist yet."""
    return Home(tmp_path / "home")


@pytest.fixture
def lived_in(tmp_path: Path, home: Home) -> Home:
    """A home with an installed plugin in it."""
    put(home, folder(tmp_path / "sources", "resident", plugin("resident")))
    return home


@pytest.fixture
def refused(lived_in: Home, tmp_path: Path) -> Callable[[str | Path], str]:
    """Installs what must be refused, in a home that is lived in and in one that is not there; gives the one line."""

    def refuse(text: str | Path, subdir: str = "") -> str:
        before = everything(lived_in.root)
        outside = everything(tmp_path)
        said = set()
        for home in (lived_in, Home(tmp_path / "no home yet")):
            with pytest.raises(BuzzError) as caught:
                asked(home, text, tmp_path, subdir=subdir, agreed=True)
            said.add(str(caught.value))
        assert everything(lived_in.root) == before
        assert everything(tmp_path) == outside, "something was written outside of the home"
        (line,) = said
        assert "\n" not in line
        assert line.isprintable()
        return line

    return refuse
