"""Both OpenAI protocols through the real `openai` package: scripts, tools, faults and tokens, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from buzz_host.rehearsal import Rehearsal
from tests.host.rehearsal.asking import post
from tests.host.rehearsal.conversing import Asking, ask_chat, ask_responses, client, played, returned
from tests.host.rehearsal.test_docs import EXAMPLES
from tests.host.rehearsal.test_server import event_of

pytestmark = [pytest.mark.anyio, pytest.mark.req("HAR-05")]


@pytest.fixture(scope="module")
async def running(anyio_backend: str) -> AsyncIterator[Rehearsal]:
    """One server for the tests that look at no record: the conversations of each are its own."""
    async with Rehearsal.start() as started:
        yield started


both = pytest.mark.parametrize("ask", [ask_responses, ask_chat])
in_both_forms = pytest.mark.parametrize("stream", [True, False])


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


@both
@in_both_forms
@pytest.mark.parametrize(("message", "shown"), EXAMPLES)
def test_each_message_of_the_page_gets_the_answers_shown(
    running: Rehearsal, ask: Asking, stream: bool, message: str, shown: str
) -> None:
    if ask is ask_chat:  # one text an answer
        shown = shown.replace("text: Hello.\ntext: Two", "text: Hello.\n\nTwo")
    assert "\n".join(played(running.url, ask, message, stream=stream)) == shown


@both
@in_both_forms
def test_what_is_echoed_is_what_was_sent_to_the_byte(rehearsal: Rehearsal, ask: Asking, stream: bool) -> None:
    text = "rehearse: echo\n" + 'Grüße, 你好, 😀, \u2028 and \u2029 and \x85, a \\ and a " ' * 2000
    with client(rehearsal.url) as api:
        heard = ask(api, said(text), stream)
    assert heard.texts == (text,)
    assert rehearsal.requests()[-1].newest_user_text == text
    assert b"sk-of-the-test" not in rehearsal.record_path.read_bytes()


@both
@in_both_forms
def test_tokens_are_told(running: Rehearsal, ask: Asking, stream: bool) -> None:
    with client(running.url) as api:
        heard = ask(api, said("rehearse: say " + "x" * 4000), stream)
    assert heard.usage is not None
    given, cached, made, total = heard.usage
    assert (cached, total) == (0, given + made)
    assert 1000 <= given <= 1100
    assert 1000 <= made <= 1100


def test_a_stream_of_chat_completions_tells_tokens_only_when_asked(running: Rehearsal) -> None:
    with client(running.url) as api:
        assert ask_chat(api, said("hello"), True, counted=False).usage is None
        assert ask_chat(api, said("hello"), True).usage is not None
        with pytest.raises(openai.BadRequestError, match="stream_options: only a stream has options"):
            ask_chat(api, said("hello"), False, stream_options={"include_usage": True})


@both
@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, openai.BadRequestError, None),
        (401, openai.AuthenticationError, "invalid_api_key"),
        (404, openai.NotFoundError, None),
        (429, openai.RateLimitError, "rate_limit_exceeded"),
        (500, openai.InternalServerError, None),
        (503, openai.InternalServerError, "server_is_overloaded"),
        (529, openai.InternalServerError, None),
    ],
)
def test_a_status_is_the_packages_own_error(
    running: Rehearsal, ask: Asking, status: int, kind: type[openai.APIStatusError], code: str | None
) -> None:
    with client(running.url) as api, pytest.raises(kind) as caught:
        ask(api, said(f"rehearse: fail {status}"), True)
    assert caught.value.status_code == status
    assert caught.value.code == code
    assert caught.value.body["message"] == f"rehearsal: the script asked for status {status}"  # type: ignore[index]
    assert "retry-after" not in caught.value.response.headers


@both
def test_the_packages_own_retries_see_a_fault_as_often_as_the_script_says(rehearsal: Rehearsal, ask: Asking) -> None:
    with client(rehearsal.url) as api:
        heard = ask(api.with_options(max_retries=2), said("rehearse: fail 500 2 times\nrehearse: say ok"), True)
    assert heard.texts == ("ok",)
    assert len(rehearsal.requests()) == 3


@both
@in_both_forms
def test_a_dropped_answer_is_no_answer(rehearsal: Rehearsal, ask: Asking, stream: bool) -> None:
    with client(rehearsal.url) as api, pytest.raises((openai.APIConnectionError, httpx2.TransportError)):
        ask(api, said("rehearse: drop"), stream)
    assert event_of(rehearsal, "dropped")["n"] == 1


@both
def test_a_hang_ends_when_the_package_gives_up(rehearsal: Rehearsal, ask: Asking) -> None:
    with client(rehearsal.url) as api, pytest.raises(openai.APITimeoutError):
        ask(api.with_options(timeout=0.3), said("rehearse: hang"), True)
    assert event_of(rehearsal, "disconnected")["n"] == 1


@both
def test_a_new_message_behind_a_tools_result_has_a_script_of_its_own(running: Rehearsal, ask: Asking) -> None:
    """As a message that arrives while tools run stands there in these protocols."""
    with client(running.url) as api:
        items = said("rehearse: call first\nrehearse: say never")
        heard = ask(api, items, True)
        items += [*heard.items, returned(ask, heard.calls[0], "done"), *said("rehearse: call second")]
        heard = ask(api, items, True)
        assert [call.name for call in heard.calls] == ["second"]
        items += [*heard.items, returned(ask, heard.calls[0], "done too")]
        assert ask(api, items, False).texts == ("rehearsal: second returned: done too",)


@both
def test_faults_are_counted_for_each_conversation(rehearsal: Rehearsal, ask: Asking) -> None:
    text = said("rehearse: fail 500 1 time\nrehearse: say ok")
    with client(rehearsal.url, named=False) as api:
        for key in ("one", "two"):
            with pytest.raises(openai.InternalServerError):
                ask(api, text, False, prompt_cache_key=key)  # type: ignore[call-arg]
            assert ask(api, text, False, prompt_cache_key=key).texts == ("ok",)  # type: ignore[call-arg]
        for key in ("three", "four"):
            named = api.with_options(default_headers={"session-id": key})
            with pytest.raises(openai.InternalServerError):
                ask(named, text, False)
        for before in ("a", "b"):
            with pytest.raises(openai.InternalServerError):
                ask(api, [*said(before), {"role": "assistant", "content": "yes"}, *text], False)


def test_models_are_listed_and_each_name_is_one(running: Rehearsal) -> None:
    with client(running.url) as api:
        assert [model.id for model in api.models.list()] == ["rehearsal"]
        assert api.models.retrieve("some/model:7b").id == "some/model:7b"


def test_a_tool_in_a_namespace_is_called_by_both_of_its_names(running: Rehearsal) -> None:
    inner = {"type": "function", "name": "remember", "description": "", "parameters": {}, "strict": False}
    for namespace in ("mcp__notes", "mcp__notes__"):
        tools = [{"type": "namespace", "name": namespace, "description": "notes", "tools": [inner]}]
        with client(running.url) as api:
            items = said('rehearse: call mcp__notes__remember {"fact": "tea"}\nrehearse: and call other')
            answer = api.responses.create(model="m", input=items, tools=tools)  # type: ignore[arg-type]
            first, second = (item.model_dump(exclude_none=True) for item in answer.output)
            assert (first["namespace"], first["name"]) == (namespace, "remember")
            assert (second.get("namespace"), second["name"]) == (None, "other")
            results = [
                {"type": "function_call_output", "call_id": each["call_id"], "output": each["name"]}
                for each in (first, second)
            ]
            told = api.responses.create(model="m", input=[*items, first, second, *results])
        assert told.output_text == (
            "rehearsal: mcp__notes__remember returned: remember\nrehearsal: other returned: other"
        )


@in_both_forms
def test_a_tool_that_takes_a_text_gets_one(running: Rehearsal, stream: bool) -> None:
    tools = [{"type": "custom", "name": "patch"}]
    text = 'rehearse: call patch {"input": "*** Begin\\n+ é\\n"}\nrehearse: and call patch {"a": 1}\nrehearse: report'
    with client(running.url) as api:
        heard = ask_responses(api, said(text), stream, tools=tools)
        assert [item["type"] for item in heard.items] == ["custom_tool_call"] * 2
        assert [item["input"] for item in heard.items] == ["*** Begin\n+ é\n", '{"a": 1}']
        results = [
            {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "applied"} for item in heard.items
        ]
        told = ask_responses(api, [*said(text), *heard.items, *results], stream, tools=tools)
    assert told.texts == ("rehearsal: patch returned: applied\nrehearsal: patch returned: applied",)


@both
def test_a_result_that_is_an_image_is_named(rehearsal: Rehearsal, ask: Asking) -> None:
    url = "data:image/png;base64,AAAA"
    with client(rehearsal.url) as api:
        items = said("rehearse: call look")
        heard = ask(api, items, True)
        result = returned(ask, heard.calls[0], "")
        items += [*heard.items, result]
        if ask is ask_responses:
            result["output"] = [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": url}]
            expected = "rehearsal: look returned: seen\n[input_image]"
        else:  # as goose and Pi send one: in a user's message of their own, which is nobody's text
            result["content"] = "seen"
            picture = {"type": "image_url", "image_url": {"url": url}}
            notes: list[dict[str, Any]] = [{"type": "text", "text": "Attached image(s) from tool result:"}]
            items.append({"role": "user", "content": [*notes, picture]})
            expected = "rehearsal: look returned: seen"
        assert ask(api, items, True).texts == (expected,)
    assert rehearsal.requests()[-1].newest_user_text == "rehearse: call look"


def test_an_error_is_in_the_form_of_the_protocol_that_was_asked(running: Rehearsal) -> None:
    with client(running.url) as api:
        for path in ("/responses", "/chat/completions"):
            for call in (
                lambda path=path: api.get(path, cast_to=object),
                lambda path=path: api.post(path, cast_to=object, body={"model": "m"}),
                lambda path=path: api.post(path, cast_to=object, options={"headers": {"origin": "http://a"}}),
            ):
                with pytest.raises(openai.APIStatusError) as caught:
                    call()
                assert set(json.loads(caught.value.response.text)) == {"error"}
                assert caught.value.body["message"].startswith("rehearsal: ")  # type: ignore[index]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
@pytest.mark.parametrize(
    ("octets", "told"),
    [
        (b"", "the body must be a JSON object"),
        (b"\xff\xfe", "the body is not valid JSON: "),
        (b'{"model": NaN}', "the body is not valid JSON: NaN is not a JSON number"),
        (b'{"model": "m", "input": [], "messages": []}', ": expected a "),
        (b"[" * 100_000, "the body is not valid JSON: "),
    ],
)
def test_a_bad_body_is_recorded_and_refused_in_one_line(
    running: Rehearsal, path: str, octets: bytes, told: str
) -> None:
    before = len(running.requests())
    reply = post(running.url, path, octets)
    assert reply.message is not None
    assert (reply.status, list(reply.message), reply.error["type"]) == (400, ["error"], "invalid_request_error")
    assert told in reply.error["message"]
    assert "\n" not in reply.error["message"]
    assert running.requests()[before].raw == octets


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_a_lone_surrogate_comes_back_as_it_was_sent(running: Rehearsal, path: str) -> None:
    items = b'[{"role": "user", "content": "rehearse: echo\\n\\ud800"}]'
    reply = post(running.url, path, b'{"model": "m", "input": %b, "messages": %b}' % (items, items))
    assert "rehearse: echo\\n\\ud800" in json.dumps(reply.message)
    assert running.requests()[-1].newest_user_text == "rehearse: echo\n\ud800"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_a_deeply_nested_body_is_answered_or_refused(running: Rehearsal, path: str) -> None:
    item = b'{"role": "user", "content": "x"}'
    for depth in (500, 900, 990, 5_000):
        tools = b"[" * depth + b"]" * depth
        reply = post(running.url, path, b'{"model": "m", "tools": %b, "input": "x", "messages": [%b]}' % (tools, item))
        assert reply.status in (200, 400)
