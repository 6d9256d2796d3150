"""JSON-RPC without input or output: answers reach whoever waits, once, and nobody waits for a side that is gone."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.jsonrpc import Conversation, Notification, NotRpc, Request, RpcError

pytestmark = pytest.mark.anyio
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.req("HAR-03")
async def test_answers_reach_whoever_asked_in_any_order() -> None:
    talk = Conversation()
    asked = [talk.request("sum", {"of": number}) for number in range(3)]
    assert [message["id"] for message, _ in asked] == [1, 2, 3]
    for message, answer in reversed(asked):
        assert talk.received({"id": message["id"], "result": message["params"]}) is None
        assert await answer == message["params"]
    assert talk.received({"id": 2, "result": "again"}) is None, "an answer to nobody is passed over"


@pytest.mark.req("HAR-03")
async def test_a_refusal_is_raised_with_its_code_words_and_details() -> None:
    talk = Conversation()
    message, answer = talk.request("sum", {})
    talk.received({"id": message["id"], "error": {"code": -32600, "message": "no", "data": {"why": 1}}})
    with pytest.raises(RpcError, match=r"no \(-32600\)") as refused:
        await answer
    assert refused.value.details == {"why": 1}
    odd, other = talk.request("sum", {})
    talk.received({"id": odd["id"], "error": "bad"})
    with pytest.raises(RpcError, match="bad"):
        await other


@pytest.mark.req("HAR-03")
async def test_whoever_waits_is_told_at_once_that_the_other_side_is_gone() -> None:
    talk = Conversation()
    waiting = [talk.request("wait", {})[1] for _ in range(3)]
    cancelled = talk.request("wait", {})[1]
    cancelled.cancel()
    talk.gone(EOFError("it died"))
    late = talk.request("wait", {})[1]
    for answer in (*waiting, late):
        with pytest.raises(EOFError, match="it died"):
            await answer
    await asyncio.sleep(0)


@pytest.mark.req("HAR-03")
async def test_what_the_other_side_wants_is_a_value() -> None:
    talk = Conversation()
    assert talk.received({"id": "a", "method": "ask", "params": {"x": 1}}) == Request("a", "ask", {"x": 1})
    assert talk.received({"method": "tell"}) == Notification("tell", {})
    assert talk.result("a", {"y": 2}) == {"jsonrpc": "2.0", "id": "a", "result": {"y": 2}}
    assert talk.error(3, -32601, "no such method")["error"] == {"code": -32601, "message": "no such method"}
    assert talk.notification("tell") == {"jsonrpc": "2.0", "method": "tell"}


@given(VALUES)
@pytest.mark.req("HAR-03")
async def test_any_value_is_a_message_or_refused(value: object) -> None:
    talk = Conversation()
    _, answer = talk.request("wait", {})
    said: object = None
    with suppress(NotRpc):
        said = talk.received(value)  # type: ignore[arg-type]
    assert said is None or isinstance(said, Request | Notification)
    answer.cancel()
