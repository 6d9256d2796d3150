"""Where the plugins of these tests and the tests meet: what plugins said, and the gates that they wait at.

A plugin of a test imports this module by its full name; it is the test's own, not the plugin's.
"""

from __future__ import annotations

import threading
from collections import defaultdict

said: list[str] = []
contexts: list[object] = []
gates: defaultdict[str, threading.Event] = defaultdict(threading.Event)
behaviour: dict[str, str] = {}
GATE_DEADLINE_S = 20.0


def say(word: str) -> None:
    said.append(word)


def wait(gate: str) -> None:
    """Block the calling thread until the test opens the gate."""
    if not gates[gate].wait(GATE_DEADLINE_S):
        raise TimeoutError(gate)


def open_all() -> None:
    """Let everybody go who still waits, and forget everything."""
    for gate in list(gates.values()):
        gate.set()
    said.clear()
    contexts.clear()
    gates.clear()
    behaviour.clear()
