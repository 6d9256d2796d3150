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
        "turn": TURN, "at": "2026-01-02T03:05:05.000000+00:00", "session": SESSION, "agent": "dev", "harness": "claude",
        "kind": "message", "status": "failed", "steers": None, "plugins": ["freeze", "late", "off", "style-guide"],
    }  # fmt: skip


@pytest.mark.req("AUD-02")
def test_turns_can_be_narrowed(buzz: Buzz, written: Home) -> None:
    def turns(*options: str) -> list[str]:
        return [row["turn"] for row in buzz("audit", "turns", "--json", *options).rows]

    assert turns("--agent", "main") == ["7u12-0002"]
    assert turns("--limit", "1") == ["7u12-0003"]


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
        r"^✗ freeze/main  its `when` raised: KeyError: 'dev'$",
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
    assert lines[0] == "✗ freeze/main       left out: its `when` raised: KeyError: 'dev'"
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
        (["turns", "--agent", "deb"], "no agent is called 'deb', and no turn was of one; did you mean 'dev'?"),
        (["plugin", "style-guide", "--agent", "deb"], "no agent is called 'deb', and no turn was of one; did you mean"),
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
    assert buzz("audit", "turns", "--agent", "main").out == "no turns\n"
    assert "no agent is called 'nobody'" in buzz("audit", "turns", "--agent", "nobody").err
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
        {"event": "verified", "entries": 5, "head": found[1], "breaks": 0, "follows": 0}
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
    assert "the noted head: no entry has the hash abab" in done.out


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
@pytest.mark.parametrize("content", [None, b"", b"garbage \xff", b"1 2 3"])
def test_verify_misses_the_mirrored_head(content: bytes | None, buzz: Buzz, written: Home) -> None:
    written.head.unlink()
    if content is not None:
        written.head.write_bytes(content)
    done = buzz("audit", "verify")
    assert (done.code, done.err) == (1, "")
    assert "the mirrored head: expected " in done.out
    assert re.search(r"^the ledger is broken in 1 place: 5 entries, head [0-9a-f]{64}$", done.out, re.MULTILINE)


@pytest.mark.req("AUD-03")
def test_verify_takes_an_emptied_database_for_one_that_is_gone_and_leaves_it_so(buzz: Buzz, written: Home) -> None:
    for path in written.root.glob("state.db*"):
        path.unlink()
    written.database.touch()
    done = buzz("audit", "verify")
    assert done.code == 1
    assert "the database: expected a ledger with the entry" in done.out
    assert written.database.stat().st_size == 0


@pytest.mark.req("AUD-03")
@pytest.mark.parametrize("seq", [1, 2, 3, 5])
def test_a_missing_entry_is_one_cause_and_its_consequences_are_counted(seq: int, buzz: Buzz, written: Home) -> None:
    altered(written, f"DELETE FROM entries WHERE seq = {seq}")
    done = buzz("audit", "verify")
    assert done.code == 1
    first, last = done.out.split("\n")[:-1]
    assert ("the chain: " if seq < 5 else "the mirrored head: ") in first
    told = re.match(r"the ledger is broken in 1 place, and in (\d+) more that follow from that: 4 entries", last)
    assert told, last
    *breaks, result = buzz("audit", "verify", "--json").rows
    assert [each["follows"] for each in breaks] == [False] + [True] * int(told[1])
    assert (result["breaks"], result["follows"]) == (1, int(told[1]))


def altered(home: Home, *statements: str) -> None:
    """Do behind the ledger's back what somebody with a database tool can do."""
    connection = sqlite3.connect(home.database)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


SWAPPED = "UPDATE bodies SET body = CAST(replace(CAST(body AS TEXT), 'Be brief', 'Be long') AS BLOB)"
# What somebody does who knows what the columns are for; each makes the text another one.
ALTERATIONS = {
    "the text": SWAPPED,
    "the text, as another type": "UPDATE bodies SET body = replace(CAST(body AS TEXT), 'Be brief', 'Be long')",
    "the text and its hash": (
        "UPDATE bodies SET body = CAST('Be long.' AS BLOB), sha256 = "
        "x'90c0d0dde2a7f7dbbbf5e50de5f8e6c38a4cdeb3dcd5b8d0be42b5b0b6b0aa5c' WHERE body = CAST('Be brief.' AS BLOB)"
    ),
    "the salt": "UPDATE bodies SET salt = zeroblob(16)",
    "the ids of the texts": "UPDATE entries SET bodies = replace(bodies, ',', '')",
    "which text it is": (
        "UPDATE bodies SET body = (SELECT body FROM bodies AS b WHERE b.id = 1), "
        "salt = (SELECT salt FROM bodies AS b WHERE b.id = 1), "
        "sha256 = (SELECT sha256 FROM bodies AS b WHERE b.id = 1) "
        "WHERE body = CAST('Be brief.' AS BLOB)"
    ),
    "a field of the entry": "UPDATE entries SET fields = replace(fields, '\"anchored\":false', '\"anchored\":true')",
}


@pytest.mark.req("AUD-03", "AUD-02", "INS-11")
@pytest.mark.parametrize("change", ALTERATIONS)
def test_a_text_that_was_altered_is_never_shown_as_the_one_that_was_said(
    change: str, buzz: Buzz, written: Home
) -> None:
    before = buzz("audit", "show", TURN, "--json").rows[0]["sections"][1]
    altered(written, ALTERATIONS[change])
    shown = buzz("audit", "show", TURN)
    assert (shown.code, shown.err) == (1, "")
    assert "Be long." not in shown.out
    assert "was changed since it was recorded" in shown.out
    done = buzz("audit", "show", TURN, "--json")
    assert done.code == 1
    (row,) = done.rows
    section = row["sections"][1]
    assert (row["text"], section["body"], section["changed"]) == (None, None, True)
    assert section["sha256"] in (before["sha256"], None)
    if change.startswith("the text") and "hash" not in change:
        assert section["sha256"] == before["sha256"], "the hash that was recorded is known"
    assert row["changed"]
    assert all("changed since it was recorded" in line for line in row["changed"])
    for arguments in (["why", TURN], ["plugin", "style-guide"]):
        done = buzz("audit", *arguments)
        assert (done.code, done.err) == (1, "")
        assert "changed since" in done.out
        assert "Be long." not in done.out
        (*_, row) = buzz("audit", *arguments, "--json").rows
        assert row["changed"]
        assert "Be long." not in str(row)


@pytest.mark.req("AUD-03", "AUD-02")
@pytest.mark.parametrize("change", [each for each in ALTERATIONS if each != "which text it is"])
def test_a_search_finds_an_altered_text_by_what_it_was_and_shows_none(change: str, buzz: Buzz, written: Home) -> None:
    assert buzz("audit", "search", "brief").code == 0
    altered(written, ALTERATIONS[change])
    done = buzz("audit", "search", "brief")
    assert (done.code, done.err) == (1, "")
    assert "was changed since it was recorded" in done.out
    assert "Be long" not in done.out
    assert [(row["snippet"], row["changed"]) for row in buzz("audit", "search", "brief", "--json").rows] == [
        (None, True)
    ]
    assert "Be long" not in buzz("audit", "search", "long").out


@pytest.mark.req("AUD-03", "AUD-02")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE parties SET agent = agent || '2'",
        "UPDATE turns SET session = 'other'",
        "UPDATE turns SET status = 'completed' WHERE seq = 1",
        "UPDATE entries SET at = '2026-01-02T03:05:06.000000Z' WHERE seq = 1",
        "UPDATE entries SET at = 'yesterday' WHERE seq = 1",
        "UPDATE entries SET fields = replace(fields, '\"failed\"', '\"completed\"') WHERE kind = 'turn_ended'",
    ],
)
def test_an_altered_label_is_said_to_be_altered(change: str, buzz: Buzz, written: Home) -> None:
    altered(written, change)
    listed = buzz("audit", "turns")
    assert (listed.code, listed.err) == (1, "")
    assert "CHANGED since it was recorded" in listed.out
    assert any(row.get("changed") for row in buzz("audit", "turns", "--json").rows)
    for arguments in (["show", TURN], ["plugin", "style-guide"]):
        done = buzz("audit", *arguments)
        assert (done.code, done.err) == (1, "")
        assert re.search(r"! (entry \d+ .* was changed|the index of turns says something else)", done.out)


@pytest.mark.req("AUD-03")
def test_a_damaged_database_is_told_in_lines(buzz: Buzz, written: Home) -> None:
    octets = bytearray(written.database.read_bytes())
    for place in range(4096, len(octets), 512):
        octets[place] ^= 0xFF
    written.database.write_bytes(bytes(octets))
    done = buzz("audit", "verify")
    assert (done.code, done.err) == (1, "")
    assert "the database file: expected a sound file" in done.out
    assert "the ledger is broken in " in done.out
    written.database.write_bytes(b"no database " * 1000)
    done = buzz("audit", "verify", "--json")
    assert (done.code, done.err) == (1, "")
    assert done.rows[-1] == {"event": "verified", "entries": 0, "head": None, "breaks": 1, "follows": 0}
    assert buzz("audit", "show", TURN).code == 2


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
    done = buzz("audit", "show", TURN, "--json")
    assert done.code == 1
    (row,) = done.rows
    assert row["changed"] == [
        "entry 1 (turn_sent): the text sections[1].text is gone", "entry 3 (turn_ended): the text reply is gone",
    ]  # fmt: skip
    assert (row["text"], row["sections"][1]["body"], row["sections"][1]["sha256"], row["reply"]) == (
        None,
        None,
        None,
        None,
    )
    assert row["sections"][1]["bytes"] == 9
    assert buzz("audit", "show", TURN).out.count("this text is gone from the ledger") == 2
