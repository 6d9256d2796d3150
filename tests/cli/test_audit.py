"""What an auditor sees, read from ledgers made by hand."""

from __future__ import annotations

import json
import re
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from buzz_author.turns import LeftOut
from buzz_host.ledger import SettledRecord, record_settled, record_steer
from buzz_host.settings import Home
from buzz_host.store import Store
from tests.cli.commands import Buzz
from tests.cli.ledgers import HOSTILE, SESSION, TURN, full_turn, spoken, turn_record, write

STEER = "57ee-1"


@pytest.fixture
def written(opened: Home) -> Home:
    """A home with one full turn, and two of others."""
    write(
        opened,
        *full_turn(),
        turn_record(2, spoken("style-guide", "tone", "Be brief."), agent="main", session="0ther-2"),
        turn_record(3, left_out=(LeftOut("style-guide", "tone", "plugin-off", "it is switched off"),)),
    )
    return opened


@pytest.mark.req("AUD-02")
def test_turns_come_newest_first(buzz: Buzz, written: Home) -> None:
    done = buzz("audit", "turns", "--json")
    assert (done.code, done.err) == (0, "")
    assert [(row["turn"], row["agent"], row["status"]) for row in done.rows] == [
        ("7u12-0003", "dev", "unended"), ("7u12-0002", "main", "unended"), (TURN, "dev", "failed"),
    ]  # fmt: skip
    assert done.rows[2] == {
        "turn": TURN, "at": "2026-01-02T03:05:05+00:00", "session": SESSION, "agent": "dev", "harness": "claude",
        "kind": "message", "status": "failed", "steers": None, "plugins": ["freeze", "late", "off", "style-guide"],
    }  # fmt: skip


@pytest.mark.req("AUD-02")
def test_turns_can_be_narrowed(buzz: Buzz, written: Home) -> None:
    def turns(*options: str) -> list[str]:
        return [row["turn"] for row in buzz("audit", "turns", "--json", *options).rows]

    assert turns("--agent", "main") == ["7u12-0002"]
    assert turns("--limit", "1") == ["7u12-0003"]
    assert turns("--agent", "nobody") == []


@pytest.mark.req("AUD-02")
def test_turns_for_people(buzz: Buzz, written: Home) -> None:
    head, *rows = buzz("audit", "turns").out.split("\n")[:-1]
    assert head.split() == ["TURN", "SENT", "AGENT", "HARNESS", "KIND", "STATUS", "SESSION", "PLUGINS"]
    assert len(rows) == 3
    assert rows[2].split() == [
        "7u12-000", "2026-01-02", "03:05:05", "dev", "claude", "message", "failed", "5e55-1",
        "freeze,", "late,", "off,", "style-guide",
    ]  # fmt: skip


@pytest.mark.req("AUD-01")
def test_a_turn_as_json_is_the_event_with_how_it_ended(buzz: Buzz, written: Home) -> None:
    (row,) = buzz("audit", "show", TURN, "--json").rows
    assert list(row) == [
        "v", "event", "at", "session", "turn", "agent", "harness", "kind", "text", "sections", "left_out", "faults",
        "status", "reply", "usage", "error",
    ]  # fmt: skip
    assert (row["v"], row["event"], row["turn"], row["status"]) == (1, "turn", TURN, "failed")
    assert datetime.fromisoformat(row["at"]) == datetime(2026, 1, 2, 3, 5, 5, tzinfo=UTC)
    assert row["text"] == (
        '<buzz-event type="message">\nmessage 1\n</buzz-event>\n\n'
        '<plugin-instructions plugin="style-guide">\nBe brief.\n</plugin-instructions>'
    )
    assert list(row["sections"][1]) == ["tag", "attributes", "body", "plugin", "id", "bytes", "sha256"]
    assert row["sections"][0]["attributes"] == [["type", "message"]]
    assert (row["sections"][0]["plugin"], row["sections"][1]["plugin"]) == (None, "style-guide")
    assert row["left_out"][1] == {"plugin": "off", "id": "*", "reason": "plugin-off", "detail": ""}
    assert row["faults"][0] == {"plugin": "freeze", "phase": "when", "message": "KeyError: 'dev'"}
    assert row["reply"] == "half a reply"
    assert row["usage"]["input_tokens"] == 1200
    assert row["error"] == {"kind": "overloaded", "status": 529, "native": "too many", "retryable": True}


@pytest.mark.req("AUD-01")
def test_a_turn_for_people_says_all_of_it(buzz: Buzz, written: Home) -> None:
    done = buzz("audit", "show", TURN)
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    expected = [
        r"^turn     7u12-0001  message$",
        r"^agent    dev  on claude$",
        r"^session  5e55-1$",
        r"^status   failed$",
        r"^buzz-event  type=message  9 bytes$",
        r"^│ message 1$",
        r"^plugin-instructions  style-guide/tone  9 bytes  sha256 [0-9a-f]{12}…$",
        r"^│ Be brief\.$",
        r"^left out$",
        r"^✗ freeze/main  its `when` raised an error: KeyError: 'dev'$",
        r"^✗ off  the plugin is off$",
        r"^! fault late  in apply: slow$",
        r"^tool look  plugin style-guide$",
        r'^│ \{"where":"here"\}$',
        r"^returned 4 bytes$",
        r"^│ seen$",
        r"^reply$",
        r"^│ half a reply$",
        r"^error  overloaded \(status 529\): too many$",
        r"^tokens  1,200 in, 34 out$",
    ]
    place = 0
    for pattern in expected:
        found = re.compile(pattern, re.MULTILINE).search(done.out, place)
        assert found, f"{pattern} is not in, or not in order in:\n{done.out}"
        place = found.end()
    assert done.out.count("KeyError") == 1, "a fault that is the reason of a row is told twice"


@pytest.mark.req("AUD-01", "TRN-04")
def test_a_steered_message_is_shown_with_its_outcome(buzz: Buzz, written: Home) -> None:
    with Store.open(written) as store:
        steer = turn_record(9, spoken("style-guide", "tone", "Be brief."), steers=TURN)
        steer = type(steer)(**{each: getattr(steer, each) for each in steer.__slots__ if each != "__weakref__"} | {
            "turn": STEER, "kind": "steer",
        })  # fmt: skip
        store.write_sync(lambda tx: record_steer(tx, steer))
        store.write_sync(lambda tx: record_settled(tx, SettledRecord(STEER, steer.at, "folded")))
    out = buzz("audit", "show", TURN).out
    assert "steered while it ran: 57ee-1, folded into the running turn" in out
    assert out.index("steered while it ran") < out.index("│ message 9") < out.index("half a reply")
    (row,) = buzz("audit", "show", STEER, "--json").rows
    assert (row["kind"], row["status"]) == ("steer", "folded")


@pytest.mark.req("TRN-03")
def test_a_harness_that_carries_no_sections_is_named(buzz: Buzz, opened: Home) -> None:
    write(opened, turn_record(1, spoken("style-guide", "tone", "Be brief."), carries_sections=False))
    assert "claude builds its own prompt: only the message was sent" in buzz("audit", "show", TURN).out


@pytest.mark.req("AUD-02", "INS-11")
def test_why_has_a_row_for_each_instruction(buzz: Buzz, written: Home) -> None:
    rows = buzz("audit", "why", TURN, "--json").rows
    assert [(row["plugin"], row["id"], row["admitted"], row["reason"]) for row in rows] == [
        ("freeze", "main", False, "when-raised"),
        ("off", "*", False, "plugin-off"),
        ("style-guide", "tone", True, None),
    ]
    assert (rows[2]["bytes"], len(rows[2]["sha256"])) == (9, 64)
    lines = buzz("audit", "why", TURN).out.split("\n")
    assert lines[0] == "✗ freeze/main       left out: its `when` raised an error: KeyError: 'dev'"
    assert lines[2] == f"✓ style-guide/tone  admitted, 9 bytes, sha256 {rows[2]['sha256']}"


@pytest.mark.req("AUD-02")
def test_a_plugin_told_whom_what(buzz: Buzz, written: Home) -> None:
    rows = buzz("audit", "plugin", "style-guide", "--json").rows
    assert [(row["turn"], row["agent"], [each["body"] for each in row["told"]]) for row in rows] == [
        ("7u12-0003", "dev", []), ("7u12-0002", "main", ["Be brief."]), (TURN, "dev", ["Be brief."]),
    ]  # fmt: skip
    assert [each["reason"] for each in rows[0]["left_out"]] == ["plugin-off"]
    assert [row["turn"] for row in buzz("audit", "plugin", "style-guide", "--agent", "main", "--json").rows] == [
        "7u12-0002"
    ]
    out = buzz("audit", "plugin", "style-guide").out
    assert "✗ style-guide/tone  the plugin is off: it is switched off" in out
    assert out.count("told style-guide/tone  9 bytes") == 2


@pytest.mark.req("AUD-02")
def test_the_beginning_of_an_id_is_enough_where_it_is_the_only_one(buzz: Buzz, written: Home) -> None:
    assert buzz("audit", "show", "7u12-0002", "--json").rows == buzz("audit", "show", "7u12-0002", "--json").rows
    assert buzz("audit", "why", "7u12-0003").code == 0
    done = buzz("audit", "show", "7u12")
    assert (done.code, done.out) == (2, "")
    assert "begins the ids of several turns" in done.err


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["show", "nothing"], "the ledger has no turn 'nothing'"),
        (["why", "nothing"], "the ledger has no turn 'nothing'"),
        (["plugin", "style-gide"], "no turn names a plugin 'style-gide': did you mean style-guide?"),
        (["turns", "--session", "nothing"], "no session is called 'nothing'"),
        (["verify", "--head", "xyz"], "'xyz' is no head of a ledger: 64 hexadecimal digits are expected"),
    ],
)
def test_what_is_not_there_is_one_line(arguments: list[str], words: str, buzz: Buzz, written: Home) -> None:
    done = buzz("audit", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert words in done.err


@pytest.mark.req("AUD-02")
def test_asking_a_home_without_turns_changes_nothing(buzz: Buzz, home: Path) -> None:
    assert buzz("audit", "turns").out == "no turns\n"
    assert buzz("audit", "turns", "--json").out == ""
    assert buzz("audit", "show", "x").code == buzz("audit", "plugin", "x").code == 2
    assert buzz("audit", "verify").out == "the ledger is whole: 0 entries, head none\n"
    assert not home.exists()


@pytest.mark.req("AUD-03")
def test_verify_says_how_much_is_whole(buzz: Buzz, written: Home) -> None:
    done = buzz("audit", "verify")
    assert (done.code, done.err) == (0, "")
    found = re.fullmatch(r"the ledger is whole: 5 entries, head ([0-9a-f]{64})\n", done.out)
    assert found, done.out
    assert buzz("audit", "verify", "--head", found[1]).code == 0
    assert buzz("audit", "verify", "--json").rows == [
        {"event": "verified", "entries": 5, "head": found[1], "breaks": 0}
    ]


@pytest.mark.req("AUD-03")
def test_verify_names_each_break_and_fails(buzz: Buzz, written: Home) -> None:
    connection = sqlite3.connect(written.database)
    with connection:
        connection.execute("UPDATE bodies SET body = CAST('Be brieF.' AS BLOB) WHERE body = CAST('Be brief.' AS BLOB)")
    connection.close()
    done = buzz("audit", "verify")
    assert (done.code, done.err) == (1, "")
    first, last = done.out.split("\n")[0], done.out.split("\n")[-2]
    assert first.startswith("entry 1: body ")
    assert last.startswith("the ledger is broken in ")
    *breaks, result = buzz("audit", "verify", "--json").rows
    assert {each["event"] for each in breaks} == {"break"}
    assert (result["event"], result["breaks"]) == ("verified", len(breaks))


@pytest.mark.req("AUD-03")
def test_verify_misses_a_head_that_was_noted(buzz: Buzz, written: Home) -> None:
    done = buzz("audit", "verify", "--head", "ab" * 32)
    assert done.code == 1
    assert "the head: expected an entry" in done.out


@pytest.mark.req("AUD-03")
def test_verify_misses_a_database_that_is_gone(buzz: Buzz, written: Home) -> None:
    for path in written.root.glob("state.db*"):
        path.unlink()
    assert written.head.exists()
    done = buzz("audit", "verify")
    assert done.code == 1
    assert "the database: expected a ledger with the entry" in done.out
    assert not written.database.exists()


@pytest.mark.req("AUD-03")
def test_a_damaged_database_is_told_in_lines(buzz: Buzz, written: Home) -> None:
    octets = bytearray(written.database.read_bytes())
    for place in range(4096, len(octets), 512):
        octets[place] ^= 0xFF
    written.database.write_bytes(bytes(octets))
    done = buzz("audit", "verify")
    assert done.code in (1, 2), done
    assert "Traceback" not in done.err + done.out


@pytest.mark.req("SEC-04")
@pytest.mark.parametrize("arguments", [["show", TURN], ["why", TURN], ["plugin", "style-guide"], ["turns"]])
def test_no_text_of_anybodys_reaches_the_terminal_as_it_is(arguments: list[str], buzz: Buzz, opened: Home) -> None:
    write(opened, *full_turn(HOSTILE))
    done = buzz("audit", *arguments)
    assert done.code == 0, done.err
    assert not set(done.out) & set("\x1b\x9b\u202e\x07\r")
    if arguments[0] == "show":
        assert done.out.count("\\x1b[31mred\\x9b2J \\u202eback\\x07") == 7


@pytest.mark.req("SEC-04", "CLI-01")
def test_json_keeps_the_text_and_is_harmless_all_the_same(buzz: Buzz, opened: Home) -> None:
    write(opened, *full_turn(HOSTILE))
    done = buzz("audit", "show", TURN, "--json")
    assert not set(done.out) & set("\x1b\x9b\u202e\x07\r")
    assert json.loads(done.out)["reply"] == f"half a reply{HOSTILE}"


@pytest.mark.req("AUD-01")
def test_a_text_that_is_gone_is_said_to_be_gone(buzz: Buzz, written: Home) -> None:
    connection = sqlite3.connect(written.database)
    with connection:
        connection.execute("DELETE FROM bodies WHERE body IN (CAST('Be brief.' AS BLOB), CAST('half a reply' AS BLOB))")
    connection.close()
    (row,) = buzz("audit", "show", TURN, "--json").rows
    assert (row["text"], row["sections"][1]["body"], row["sections"][1]["sha256"], row["reply"]) == (
        None,
        None,
        None,
        None,
    )
    assert row["sections"][1]["bytes"] == 9
    assert buzz("audit", "show", TURN).out.count("this text is gone from the ledger") == 2
