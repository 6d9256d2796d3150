"""The server's process: `python -m buzz_host.rehearsal [--record FILE] [--script FILE] [--temporary FOLDER]`.

Prints one JSON line when it is ready (`{"url": …}`, or `{"error": …}` and exit code 2), then serves until its
standard input ends or its parent does: whoever started it cannot leave it behind, not even by dying.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import select
import sys
import threading
from pathlib import Path
from typing import NoReturn

from buzz_host.rehearsal.engine import Engine
from buzz_host.rehearsal.neutral import NotUnderstood
from buzz_host.rehearsal.record import Record, remove_temporary
from buzz_host.rehearsal.script import steps_of_file
from buzz_host.rehearsal.server import RehearsalServer

EXIT_BAD_INPUT = 2


def main() -> NoReturn:
    """Serves; never returns."""
    parser = argparse.ArgumentParser(prog="python -m buzz_host.rehearsal", description="a model server without a model")
    parser.add_argument("--record", type=Path, help="append each request to this file (JSON Lines)")
    parser.add_argument("--script", type=Path, help="answer with these, in order (.toml, or JSON)")
    parser.add_argument("--parent", type=int, default=os.getppid(), help="end with this process, our parent")
    parser.add_argument("--temporary", type=Path, help="remove the temporary files in this folder at the end")
    options = parser.parse_args()
    run = secrets.token_hex(8)
    try:
        record = Record(options.record, run)
    except OSError as error:
        _fail(f"{options.record}: the record cannot be written: {error.strerror}")
    try:
        engine = Engine(steps_of_file(options.script) if options.script else None)
    except NotUnderstood as error:
        _fail(str(error))
    try:
        server = RehearsalServer(record, engine)
    except OSError as error:
        _fail(f"no port of 127.0.0.1 can be opened: {error.strerror}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _say({"url": f"http://127.0.0.1:{server.server_port}", "run": run, "pid": os.getpid()})
    threading.Thread(target=_warm, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        _wait_for_end(options.parent)
    if options.temporary is not None:
        # Its host does so too, unless it was killed: then nobody else is there.
        remove_temporary(options.temporary)
    os._exit(0)  # threads that hang on purpose are not waited for; every record line is written already


def _wait_for_end(parent: int) -> None:
    """Returns when standard input ends or the parent has died."""
    poll = select.poll()
    poll.register(0, select.POLLIN)
    watched: int | None = None
    if hasattr(os, "pidfd_open"):  # Linux; elsewhere the end of standard input is what tells
        try:
            watched = os.pidfd_open(parent)
            poll.register(watched, select.POLLIN)
        except OSError:
            watched = None
    if os.getppid() != parent:
        return
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == watched or not os.read(0, 4096):
                return


def _warm() -> None:
    """Loads what the default answer needs, off the path to the first one; if it cannot, that answer says so."""
    with contextlib.suppress(Exception):
        import buzz_author.sections  # noqa: F401


def _say(line: dict[str, object]) -> None:
    os.write(1, json.dumps(line).encode("ascii") + b"\n")


def _fail(message: str) -> NoReturn:
    _say({"error": message})
    print(message, file=sys.stderr)
    os._exit(EXIT_BAD_INPUT)


if __name__ == "__main__":
    main()
