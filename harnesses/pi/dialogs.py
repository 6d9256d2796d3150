"""What the program asks over its own protocol: may it use a tool, put by our extension as a dialog (PRM-01).

Each such request is one event and waits for `answer`. Every other dialog is dismissed: nobody is there to see it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Literal

from buzz_author.events import HarnessEvent, PermissionRequested
from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonObject
from harnesses.pi.program import READING
from harnesses.pi.rpc import PiChannel

PERMISSION: Final = "buzz:permission"
# The kinds that the program waits for; the others only show something.
_WAIT: Final = frozenset({"select", "confirm", "input", "editor"})


class Dialogs:
    """The open requests of one session. `turn` is the one that runs; `emit` gets each event."""

    def __init__(self, turn: Callable[[], str | None], emit: Callable[[HarnessEvent], None]) -> None:
        self._turn = turn
        self._emit = emit
        self._open: set[str] = set()

    @property
    def wait(self) -> bool:
        """Whether the program waits for somebody."""
        return bool(self._open)

    def asked(self, said: JsonObject) -> bool:
        """A request of the program's; True where it is to be refused at once."""
        if said.get("method") not in _WAIT:
            return False
        turn = self._turn()
        if said.get("title") != PERMISSION or said.get("method") != "input" or turn is None:
            return True
        try:
            call = json.loads(str(said.get("placeholder")))
            tool, arguments = str(call["tool"]), call["arguments"]
        except (ValueError, KeyError, TypeError):
            return True
        request = str(said.get("id"))
        self._open.add(request)
        shown = arguments if isinstance(arguments, dict) else {}
        self._emit(PermissionRequested(turn, request, tool, shown, read_only=tool in READING))
        return False

    async def refuse(self, rpc: PiChannel, said: JsonObject) -> None:
        """Dismiss a dialog. Raises `HarnessError` when the program is gone."""
        await rpc.tell("extension_ui_response", id=said.get("id"), cancelled=True)

    async def answer(
        self, rpc: PiChannel, request: str, decision: Literal["allow", "deny"], reason: str | None
    ) -> None:
        """Answer an open request. Raises `HarnessError` for one that is not, or not any more."""
        if request not in self._open:
            raise HarnessError("invalid-request", f"Pi waits for no answer under the id {request!r}")
        self._open.discard(request)
        value = json.dumps({"decision": decision, "reason": reason})
        await rpc.tell("extension_ui_response", id=request, value=value)

    async def withdraw(self, rpc: PiChannel) -> None:
        """Dismiss whatever is open: the turn is interrupted. Raises `HarnessError` when the program is gone."""
        while self._open:
            await rpc.tell("extension_ui_response", id=self._open.pop(), cancelled=True)
