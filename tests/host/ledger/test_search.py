"""Search: every text once, in any script, indexed when no turn waits, and never more than what is there."""

from __future__ import annotations

import contextlib
import sqlite3
import string
import subprocess
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.events import Usage
from buzz_author.sections import Section, Source, section
from buzz_host.ledger import LedgerError
from buzz_host.ledger.record import EndRecord, ToolRecord, TurnRecord, record_end, record_tool, record_turn
from buzz_host.ledger.search import STEP_BYTES, STEP_ENTRIES, Find, _segmented, index, search
from buzz_host.ledger.verify import verify
from buzz_host.services.audit import Audit
from buzz_host.settings import Home
from buzz_host.store import Store, Transaction

NOW = datetime(2026, 1, 1, tzinfo=UTC)
APPEND = import_module("buzz_host.ledger.append")  # the package has a function of that name


def said(text: str, plugin: str | None = None) -> Section:
    if plugin is None:
        return section("buzz-event", text, attributes=(("type", "message"),))
    return section("plugin-instructions", text, attributes=(("plugin", plugin),), source=Source(plugin, "one"))


def turn(tx: Transaction, *sections: Section, reply: str = "Done.") -> str:
    identifier = str(uuid4())
    record_turn(tx, TurnRecord(identifier, "message", "s", "main", "echo", NOW, "", sections))
    record_tool(tx, ToolRecord(identifier, NOW, "c", "Bash", None, {"command": "grep walrus"}, "a walrus was found"))
    record_end(tx, EndRecord(identifier, NOW, "completed", reply, Usage()))
    return identifier


def found(store: Store, words: str, limit: int = 20) -> tuple[Find, ...]:
    while store.write_sync(index):
        pass
    with store.read() as connection:
        return search(connection, words, limit=limit)


@pytest.fixture
def store(home: Path):  # type: ignore[no-untyped-def]
    with Store.open(Home.resolve(home)) as opened:
        yield opened


@pytest.mark.req("AUD-02")
def test_a_text_is_found_once_with_its_newest_turn_and_what_it_was(store: Store) -> None:
    first = store.write_sync(lambda tx: turn(tx, said("Hello there"), said("Write plain words.", "style")))
    second = store.write_sync(lambda tx: turn(tx, said("Goodbye"), said("Write plain words.", "style"), reply="Bye!"))
    (find,) = found(store, "PLAIN words")
    assert (find.turn, find.role, find.tag, find.plugin, find.id) == (
        second, "section", "plugin-instructions", "style", "one",
    )  # fmt: skip
    assert find.uses == 2
    assert find.snippet == "Write plain words."
    assert [each.turn for each in found(store, "hello")] == [first]
    assert [each.role for each in found(store, "bye")] == ["reply"]
    assert {each.role for each in found(store, "walrus")} == {"tool arguments", "tool result"}
    assert found(store, "nothing-like-it") == ()


@pytest.mark.req("AUD-02")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("请在发布之前检查日志文件", "日志"),
        ("请在发布之前检查日志文件", "检查日志"),
        ("リリース前にログを確認してください", "ログ"),
        ("릴리스 전에 로그를 확인하세요", "로그"),
        ("กรุณาตรวจสอบบันทึกก่อนเผยแพร่", "บันทึก"),
        ("تحقق من السجلات قبل النشر", "السجلات"),
        ("Проверьте журналы перед выпуском", "журналы"),
        ("Überprüfe die Protokolle", "uberprufe"),
        ("mixed 日志 and words", "日志 words"),
    ],
)
def test_every_script_is_searched(store: Store, text: str, words: str) -> None:
    store.write_sync(lambda tx: turn(tx, said(text)))
    assert [each.snippet for each in found(store, words)] == [text]


@pytest.mark.req("AUD-02")
def test_characters_in_another_order_are_no_phrase(store: Store) -> None:
    store.write_sync(lambda tx: turn(tx, said("检查日志")))
    assert found(store, "志日") == ()


@pytest.mark.req("AUD-02")
def test_phrases_and_beginnings(store: Store) -> None:
    store.write_sync(lambda tx: turn(tx, said("The quick brown fox")))
    assert len(found(store, '"quick brown"')) == 1
    assert found(store, '"brown quick"') == ()
    assert len(found(store, "qui*")) == 1
    assert found(store, "qui") == ()


@pytest.mark.req("AUD-02")
@pytest.mark.parametrize("words", ["", "  ", "* \" ' -", "()", '""'])
def test_a_query_without_a_word_is_refused_in_one_line(store: Store, words: str) -> None:
    store.write_sync(lambda tx: turn(tx, said("Hello")))
    with pytest.raises(LedgerError, match="holds no word to search for"):
        found(store, words)


@pytest.mark.req("AUD-02")
@given(words=st.text(alphabet=string.printable + "日志\"'*:^-()\u2028", max_size=30))
def test_no_query_is_read_as_a_language(tmp_path_factory: pytest.TempPathFactory, words: str) -> None:
    with Store.open(Home.resolve(tmp_path_factory.mktemp("home"))) as store:
        store.write_sync(lambda tx: turn(tx, said("NEAR AND OR NOT words : x")))
        with contextlib.suppress(LedgerError):  # no word in it
            found(store, words)


@pytest.mark.req("AUD-02")
@given(text=st.text(max_size=80))
def test_what_was_said_is_found_by_any_of_its_words(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    with Store.open(Home.resolve(tmp_path_factory.mktemp("home"))) as store:
        store.write_sync(lambda tx: turn(tx, said(f"anchor {text}")))
        for word in [each for each in text.split() if each.isascii() and each.isalnum()]:
            assert any("anchor" in each.snippet for each in found(store, word)), word


@pytest.mark.req("AUD-02")
def test_it_is_indexed_when_nothing_waits_each_body_once(home: Path) -> None:
    place = Home.resolve(home)
    with Store.open(place) as store:
        for number in range(STEP_ENTRIES // 2):
            store.write_sync(lambda tx, number=number: turn(tx, said(f"number {number}"), said("Same.", "style")))
    # Closing does what was put off; what is left over is done at the search.
    finds = Audit(place).search("same")
    assert [find.uses for find in finds] == [STEP_ENTRIES // 2]
    assert len(Audit(place).search("number", limit=5)) == 5
    with sqlite3.connect(place.database) as connection:
        bodies = connection.execute("SELECT count(*) FROM bodies").fetchone()
        assert connection.execute("SELECT count(*) FROM body_uses").fetchone() == bodies
        assert list(verify(connection)) == []
    connection.close()


@pytest.mark.req("AUD-02")
def test_a_home_without_a_ledger_has_nothing_to_find(home: Path) -> None:
    assert Audit(Home.resolve(home)).search("anything") == ()
    assert not home.exists()


@pytest.mark.req("AUD-02")
def test_text_without_such_scripts_is_left_alone() -> None:
    assert _segmented("plain") == "plain"
    assert _segmented("日志x") == " 日  志 x"


@pytest.mark.req("AUD-02", "OPS-01")
@pytest.mark.parametrize("words", ["\0hello\0", "\udc80hello", "hello " * 3000, "hello\ud83d", '"hello \0"'])
def test_any_words_are_searched_for_or_refused_in_one_line(store: Store, words: str) -> None:
    store.write_sync(lambda tx: turn(tx, said("Hello \ufffd")))
    with contextlib.suppress(LedgerError):
        found(store, words)


@pytest.mark.req("AUD-02")
def test_one_step_takes_some_texts_only_and_an_entry_once_all_of_its_texts_are_in(store: Store) -> None:
    big = STEP_BYTES // 3
    texts = [f"walrus{number} " + "x " * (big // 2) for number in range(10)]
    store.write_sync(lambda tx: turn(tx, *[said(text) for text in texts]))
    for _ in range(3):
        store.write_sync(index)
    steps = 3
    while store.write_sync(index):
        steps += 1
        assert steps < 50
    assert steps >= 4
    with store.read() as connection:
        for number in range(10):
            (find,) = search(connection, f"walrus{number}")
            assert find.uses == 1


@pytest.mark.req("AUD-02", "OPS-03")
def test_a_backlog_does_not_hold_up_the_end_of_a_process(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Home.resolve(home)
    monkeypatch.setattr(APPEND, "index_when_idle", lambda tx: None)
    with Store.open(place) as store:
        for number in range(6):
            texts = [said(f"seal{number} " + "word " * 100_000) for _ in range(4)]
            store.write_sync(lambda tx, texts=texts: turn(tx, *texts))
    monkeypatch.undo()
    store = Store.open(place)
    store.write_sync(lambda tx: turn(tx, said("the last one")))
    store.close(deadline_s=5)
    with sqlite3.connect(place.database) as connection:
        upto, newest = connection.execute("SELECT (SELECT entry FROM search_upto), max(seq) FROM entries").fetchone()
    connection.close()
    assert upto < newest, "what is left is for the next time nothing waits, or for the search"
    assert len(Audit(place).search("word", limit=100)) == 6
    assert len(Audit(place).search('"the last one"')) == 1


INDEXER = """
from pathlib import Path
import sys
from buzz_host.ledger.search import index
from buzz_host.settings import Home
from buzz_host.store import Store
with Store.open(Home.resolve(Path(sys.argv[1]))) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    while store.write_sync(index):
        pass
"""


@pytest.mark.req("AUD-02", "OPS-02")
def test_two_processes_index_at_once_and_count_each_use_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Home.resolve(home)
    monkeypatch.setattr(APPEND, "index_when_idle", lambda tx: None)
    with Store.open(place) as store:

        def many(tx: Transaction) -> None:
            for number in range(STEP_ENTRIES):
                turn(tx, said(f"number {number}"), said("Same.", "style"))

        store.write_sync(many)
    command = [sys.executable, "-c", INDEXER, str(home)]
    indexers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        for _ in range(2)
    ]
    for each in indexers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in indexers:
        each.communicate("go\n", timeout=60)
        assert each.returncode == 0
    with sqlite3.connect(place.database) as connection:
        counted = dict(connection.execute("SELECT body, uses FROM body_uses").fetchall())
        listed: dict[int, int] = {}
        for (bodies,) in connection.execute("SELECT bodies FROM entries"):
            for number in {*bodies.split(",")}:
                listed[int(number)] = listed.get(int(number), 0) + 1
        words = connection.execute("SELECT count(*) FROM body_words WHERE body_words MATCH 'same'").fetchone()[0]
    connection.close()
    assert counted == listed
    assert words == 1


@pytest.mark.req("AUD-02", "AUD-03")
@pytest.mark.parametrize("listed", ["999999999999999999", "9" * 40, "-1", "x", "1,,2", ""])
def test_ids_that_somebody_altered_neither_stop_the_index_nor_hide_what_comes_after(store: Store, listed: str) -> None:
    store.write_sync(lambda tx: turn(tx, said("before")))
    store.write_sync(lambda tx: tx.execute("UPDATE entries SET bodies = ? WHERE seq = 1", (listed,)))
    assert len(found(store, "walrus")) == 2
    store.write_sync(lambda tx: turn(tx, said("afterwards")))
    assert [each.snippet for each in found(store, "afterwards")] == ["afterwards"]


@pytest.mark.req("AUD-02", "AUD-03")
def test_a_text_that_is_erased_can_be_taken_out_of_the_index(store: Store) -> None:
    store.write_sync(lambda tx: turn(tx, said("a secret 日志")))
    assert len(found(store, "secret")) == 1

    def erase(tx: Transaction) -> None:
        number, body = tx.execute("SELECT id, body FROM bodies WHERE body = ?", ("a secret 日志".encode(),)).fetchone()
        words = "INSERT INTO body_words (body_words, rowid, words) VALUES ('delete', ?, ?)"
        tx.execute(words, (number, _segmented(body.decode())))
        tx.execute("DELETE FROM bodies WHERE id = ?", (number,))

    store.write_sync(erase)
    assert found(store, "secret") == found(store, "日志") == ()
    with store.read() as connection:
        assert connection.execute("SELECT count(*) FROM body_words WHERE body_words MATCH 'secret'").fetchone() == (0,)
