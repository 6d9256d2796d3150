"""Events as a program of somebody's own sees them: typed by their kind, with one form of the time everywhere."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import get_args

import pytest

import buzz_host
from buzz_host.ledger import queries
from buzz_host.ledger.record import TurnRecord, record_turn
from buzz_host.services.audit import row_json, turn_json
from buzz_host.sessions.events import SessionEvent, TextDelta, moment_json
from buzz_host.settings import Home
from buzz_host.store import Store

PROGRAM = """
from buzz_host import Host, SessionEvent, TurnCompleted


def told(event: SessionEvent) -> str:
    if event.event == "turn_completed":
        completed: TurnCompleted = event
        return completed.reply + event.status
    if event.event == "turn_started":
        return event.text + event.sections[0].tag + event.left_out[0].reason
    if event.event == "text_delta":
        return event.text
    if event.event == "steer_settled":
        return event.outcome
    if event.event == "tool_call":
        return event.name + str(event.arguments["path"])
    if event.event == "session_ended":
        return "" if event.error is None else event.error.kind
    return event.at.isoformat()


async def main() -> None:
    async with Host() as host, host.session(agent="main") as session, session.turn("Hello") as events:
        async for event in events:
            if event.event == "turn_completed":
                print(event.status, event.usage and event.usage.input_tokens)
"""
MISTAKE = """
from buzz_host import SessionEvent


def told(event: SessionEvent) -> str:
    if event.event == "text_delta":
        return event.reply
    return event.event
"""


def checked(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={folder / 'cache'}", "program.py"],
        cwd=folder, env={"MYPYPATH": str(Path(buzz_host.__file__).parents[1])}, capture_output=True, text=True,
        encoding="utf-8", timeout=110, check=False,
    )  # fmt: skip


@pytest.mark.req("API-02")
def test_the_kind_of_an_event_tells_a_type_checker_its_fields(tmp_path: Path) -> None:
    done = checked(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr
    done = checked(tmp_path, MISTAKE)
    assert '"TextDelta" has no attribute "reply"' in done.stdout, done.stdout + done.stderr


@pytest.mark.req("API-02")
def test_every_event_of_a_session_has_a_kind_of_its_own_and_can_be_imported() -> None:
    kinds = get_args(SessionEvent)
    assert len({each.event for each in kinds}) == len(kinds)
    for each in kinds:
        assert each.__name__ in buzz_host.__all__
        assert getattr(buzz_host, each.__name__) is each
    assert all(hasattr(buzz_host, name) for name in buzz_host.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = buzz_host.Nothing  # type: ignore[attr-defined]


@pytest.mark.req("CLI-01", "AUD-01")
@pytest.mark.parametrize(
    "at",
    [
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, 120000, tzinfo=UTC),
        datetime(2026, 1, 2, 3, 4, 5, 1, tzinfo=timezone(timedelta(hours=9))),
    ],
)
def test_a_time_is_written_alike_by_an_event_and_by_the_audit(at: datetime, home: Path) -> None:
    told = TextDelta(at=at, session="s", turn="t", text="").as_json()["at"]
    assert told == moment_json(at)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", told)
    assert datetime.fromisoformat(told) == at
    with Store.open(Home.resolve(home)) as store:
        store.write_sync(lambda tx: record_turn(tx, TurnRecord("t", "message", "s", "main", "echo", at, "", ())))
        with store.read() as connection:
            view = queries.turn(connection, "t")
    assert turn_json(view)["at"] == row_json(view.row)["at"] == told
