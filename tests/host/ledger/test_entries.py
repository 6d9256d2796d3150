"""The encoding of entries: canonical, unambiguous, without texts, and the chain that is made of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.text import well_formed
from buzz_host.ledger import Body, EntryDraft, append
from buzz_host.ledger.entries import (
    GENESIS,
    REFERENCE,
    canonical_fields,
    canonical_json,
    chain_hash,
    reference,
    timestamp,
)
from buzz_host.settings import Home
from buzz_host.store import Store
from tests.host.ledger.making import NOON, texts

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
labels = st.text(alphabet='ab12:,\u00e9{}"', max_size=8)


@pytest.mark.req("AUD-03")
@given(json_values)
def test_canonical_json_is_one_text_for_one_value(value: object) -> None:
    text = canonical_json(value)
    assert json.loads(text) == value
    assert canonical_json(json.loads(text)) == text
    text.encode("utf-8")


@pytest.mark.req("AUD-03")
@given(st.dictionaries(st.text(), st.integers(), max_size=6), st.randoms())
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, int], random: Random) -> None:
    items = list(value.items())
    random.shuffle(items)
    assert canonical_json(dict(items)) == canonical_json(value)


@pytest.mark.req("AUD-03")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_json_number_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json([value])


@pytest.mark.req("AUD-03")
@given(st.tuples(*[labels] * 4), st.tuples(*[labels] * 4), st.integers(1, 1000), st.integers(1, 1000))
def test_two_entries_that_differ_in_any_part_have_different_hashes(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str], first: int, second: int
) -> None:
    same = (one, first) == (other, second)
    assert (chain_hash(first, *one, GENESIS) == chain_hash(second, *other, GENESIS)) is same


@pytest.mark.req("AUD-03")
def test_the_hash_is_what_the_page_says_it_is() -> None:
    previous = "ab" * 32
    parts = ["buzz-ledger-1", "7", "tool", "2026-11-30T12:00:00.000000Z", "t-1", '{"é":1}', previous]
    encoded = b"".join(str(len(part.encode())).encode() + b":" + part.encode() + b"," for part in parts)
    assert chain_hash(7, *parts[2:6], previous) == sha256(encoded).hexdigest()


@pytest.mark.req("AUD-03")
@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=30))])))
def test_times_are_utc_and_sort_as_text(at: datetime) -> None:
    if not datetime(2, 1, 1, tzinfo=UTC) < at < datetime(9998, 1, 1, tzinfo=UTC):
        return
    text = timestamp(at)
    assert len(text) == 27
    assert datetime.fromisoformat(text) == at
    assert text < timestamp(at + timedelta(microseconds=1))
    with pytest.raises(ValueError, match="time zone"):
        timestamp(at.replace(tzinfo=None))


def numbered(texts: list[str], hashes: list[str | None]) -> list[str]:
    return [reference(number, f"{number:064x}") for number, _ in enumerate(zip(texts, hashes, strict=True))]


@pytest.mark.req("AUD-03")
@given(st.lists(texts, max_size=4), texts)
def test_no_text_can_pass_for_a_body(words: list[str], text: str) -> None:
    fields = {"a": {"words": words, "kept": Body(text)}, "b": [Body(text), words], "c": dict(enumerate(words))}
    encoded = canonical_fields(fields, numbered)  # type: ignore[arg-type]
    assert REFERENCE.findall(encoded) == [(str(number), f"{number:064x}") for number in range(2)]
    read = json.loads(encoded)
    assert canonical_json(read) == encoded
    assert read["a"]["words"] == [well_formed(word) for word in words]


@pytest.mark.req("AUD-03")
@pytest.mark.parametrize("fields", [{"": 0}, {"a": {"bytes": 1, "digest": "0" * 64}}, {"a": {"digest": "x"}}])
def test_a_mapping_that_looks_like_a_body_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="bod"):
        canonical_fields(fields, numbered)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="datetime is no JSON"):
        canonical_fields({"at": NOON}, numbered)  # type: ignore[dict-item]


@pytest.mark.req("AUD-03")
def test_entries_hold_no_text_and_no_plain_hash_and_a_repeated_body_is_stored_once(tmp_path: Path) -> None:
    secret = "the secret word"
    plain = sha256(secret.encode()).hexdigest()
    with Store.open(Home.resolve(tmp_path)) as store:
        for turn in ("a", "b"):
            draft = EntryDraft("turn_sent", NOON, turn, {"one": Body(secret), "two": [Body(secret, plain), Body("x")]})
            store.write_sync(lambda tx, draft=draft: append(tx, draft))  # type: ignore[misc]
        with store.read() as connection:
            rows = connection.execute("SELECT fields, bodies FROM entries").fetchall()
            assert not any(word in repr(row) for row in rows for word in (secret, plain))
            assert {row[1] for row in rows} == {"1,1,2"}
            bodies = connection.execute("SELECT salt, sha256, body FROM bodies ORDER BY id").fetchall()
    assert [body for *_, body in bodies] == [secret.encode(), b"x"]
    for salt, stored, body in bodies:
        assert (len(salt), stored) == (16, sha256(body).digest())
        assert sha256(salt + stored).hexdigest() in rows[0][0]
    assert len({salt for salt, _, _ in bodies}) == 2


@pytest.mark.req("AUD-03")
def test_append_composes_with_whatever_else_the_transaction_does(tmp_path: Path) -> None:
    with Store.open(Home.resolve(tmp_path)) as store:

        def both(tx: object, fail: bool) -> None:
            append(tx, EntryDraft("tool", NOON, "t", {"text": Body("said twice")}))  # type: ignore[arg-type]
            append(tx, EntryDraft("tool", NOON, "t", {"text": Body("said twice")}))  # type: ignore[arg-type]
            if fail:
                raise LookupError

        with pytest.raises(LookupError):
            store.write_sync(lambda tx: both(tx, True))
        store.write_sync(lambda tx: both(tx, False))
        with store.read() as connection:
            entries = connection.execute("SELECT seq, previous, hash FROM entries ORDER BY seq").fetchall()
            assert connection.execute("SELECT count(*) FROM bodies").fetchone() == (1,)
    (first, genesis, made), (second, previous, _) = entries
    assert (first, second, genesis.hex(), previous) == (1, 2, GENESIS, made)


@pytest.mark.req("AUD-03")
def test_a_lone_surrogate_costs_nobody_the_entry(tmp_path: Path) -> None:
    with Store.open(Home.resolve(tmp_path)) as store:
        draft = EntryDraft("tool", NOON, "t", {"name": "a\ud800b", "text": Body("c\udfffd", "0" * 64)})
        store.write_sync(lambda tx: append(tx, draft))
        with store.read() as connection:
            assert json.loads(connection.execute("SELECT fields FROM entries").fetchone()[0])["name"] == "a\ufffdb"
            assert connection.execute("SELECT body FROM bodies").fetchone()[0].decode() == "c\ufffdd"
