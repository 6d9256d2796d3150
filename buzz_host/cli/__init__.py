"""The command line: `main` is the console script. What it needs, click too, is imported inside of it.

So a Ctrl-C that comes early ends the command in silence, as a late one does, and a standard stream that is closed is
told in one line. The verbs are in `verbs`; how a command ends is decided in `endings`, for all of them.
"""

from __future__ import annotations

import gc
import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from buzz_host.cli.verbs import VERBS, VerbGroup, buzz

__all__ = ["VERBS", "VerbGroup", "buzz", "main"]

IMPORTING_GC_THRESHOLD: Final = 50_000


def main() -> None:
    """The console script `buzz`."""
    # Until everything is there a Ctrl-C has the system's meaning: it would be a traceback of an import otherwise.
    interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Collections of young objects take a tenth of the time of a command that mostly imports; later they hardly matter.
    gc.set_threshold(IMPORTING_GC_THRESHOLD)
    from buzz_host.cli.endings import EXIT_INTERRUPTED, open_standard_streams
    from buzz_host.cli.streams import guard_streams
    from buzz_host.cli.verbs import buzz

    open_standard_streams()
    others = guard_streams()
    try:
        if interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        buzz.main()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    finally:
        if interruptible:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        others.finish()
        # What is left goes with the process; the interpreter would look through all of it once more, for 20 ms.
        gc.freeze()


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from buzz_host.cli import verbs

    return getattr(verbs, name)
