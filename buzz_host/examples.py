"""Where the example plugins are: in a checkout beside the documents, in a wheel inside the package.

The demo, the guides and their tests use the same folders, so there is one function that finds them.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def examples_folder() -> Path:
    """The folder that holds one folder per example plugin.

    Raises FileNotFoundError where neither place exists, which only a damaged installation can bring about.
    """
    installed = _PACKAGE / "example_plugins"
    checkout = _PACKAGE.parent / "docs" / "examples"
    for folder in (installed, checkout):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the example plugins are missing: neither {installed} nor {checkout}")
