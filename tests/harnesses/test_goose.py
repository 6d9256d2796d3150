"""The real goose in the conformance suite, and what is so of it alone."""

from __future__ import annotations

import base64
import json
import re
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.events import (
    Compacted,
    PermissionRequested,
    SessionEnded,
    TextDelta,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from buzz_author.harness import Gateway, Harness, HarnessError, Policy
from buzz_author.json_values import JsonObject
from buzz_author.testing import HarnessConformance, HarnessUnderTest, Stage, Talk, spec_for
from buzz_author.testing.frame import Frame
from buzz_author.testing.programs import programs
from buzz_author.testing.stage_tools import PNG, StageTools
from buzz_author.testing.wires import contains_text, end_of_newest_user_message, newest_user_texts, offered_tools
from buzz_author.tools import Text, Tool, ToolCall, ToolResult, wire_name
from buzz_host.processes import ProgramHost
from buzz_host.sessions.access import SessionAccess
from buzz_host.tools.gateway import Gateway as ToolGateway
from harnesses.goose.encode import encoded
from harnesses.goose.program import environment
from harnesses.stdio.environment import LOOPBACK_KEY

PLACES = (("notes", "remember"), ("style-guide", "Keep-it"), ("two__parts", "Do_all"), ("p" * 60, "t" * 60))

RESPONSES_FAULTS = (
    ("fail 401", "authentication", None),
    ("fail 429", "rate-limit", 429),
    ("fail 500", "overloaded", 500),
    ("drop", "connection", None),
)


def own_call(path: Path) -> str:
    return f"write {json.dumps({'path': str(path), 'content': 'made'})}"


def goose_harness(**fixed: object) -> Harness:
    from harnesses.goose import GooseHarness

    return GooseHarness(programs=programs(), **fixed)  # type: ignore[arg-type]


GOOSE = HarnessUnderTest(
    "goose",
    goose_harness,
    # The program's own, in every message of a person: the time, the working directory, how near a compaction is.
    behind=r"\n<turn-context>\n(?:(?!</?turn-context>).)*\n</turn-context>",
    hidden_statuses=frozenset({401, 403}),
    recovers_from_drop=False,
    retries_max=3,  # its provider's own number, which no setting lowers
    tells_retries=False,
    images=False,  # unless goose knows that the model sees: below
    compact="rehearse: fail 413",
    idle_s=lambda seconds: {"idle_s": seconds},
    own_call=own_call,
)


@pytest.mark.program("goose")
class TestGoose(HarnessConformance):
    kind = GOOSE


MODEL_WORDS = "Ran into this error: Server error: Server error (500) at a place.\n\nPlease retry if you think so."


class _Bare(BaseHTTPRequestHandler):
    """An endpoint that gives its answers neither ids nor counts of tokens, and says what it is told behind `say:`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = next(each["content"] for each in reversed(body["messages"]) if each["role"] == "user")
        said = asked.rpartition("say:")[2].partition("\n<turn-context>")[0]
        deltas = [{"role": "assistant", "content": said}] if said else []
        chunks: list[dict[str, object]] = [
            {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
        ]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in chunks:
            shown = {"object": "chat.completion.chunk", "created": 0, "model": "bare", **chunk}
            self.wfile.write(b"data: " + json.dumps(shown).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


@contextmanager
def bare_model() -> Iterator[str]:
    """The URL of such an endpoint."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Bare) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            serving.join()


@pytest.mark.program("goose")
class TestGooseAlone(Frame):
    kind = GOOSE

    @pytest.mark.req("HAR-03")
    async def test_a_model_that_speaks_like_a_fault_is_taken_at_its_word(self, stage: Stage) -> None:
        talk = await stage.open()
        ended = await talk.ask(f"rehearse: say {json.dumps(MODEL_WORDS)}")
        assert (ended.status, ended.reply) == ("completed", MODEL_WORDS)
        talk = await stage.open(tools=StageTools().all)
        both = f"rehearse: say {json.dumps(MODEL_WORDS)}\nrehearse: and call mcp__stage__slow\nrehearse: fail 500"
        ended = await talk.ask(both)
        assert (ended.status, ended.reply, ended.error and ended.error.status) == ("failed", "", 500)
        with bare_model() as url:
            talk = await stage.open(model_url=url)
            # No id and no count of the model's own: only what comes behind tells the two apart.
            for text in (MODEL_WORDS, "Plain."):
                ended = await talk.ask(talk.raw(f"say:{text}"))
                assert (ended.status, ended.reply, ended.usage) == ("completed", text, None)
            ended = await talk.ask(talk.raw("say:"))
            assert (ended.status, ended.reply) == ("failed", "")
            assert ended.error is not None
            assert "empty response" in ended.error.native

    @pytest.mark.req("HAR-03")
    async def test_a_history_that_is_too_long_is_summed_up_and_one_that_stays_so_is_an_error(
        self, stage: Stage
    ) -> None:
        talk = await stage.open()
        assert (await talk.ask("Something.")).status == "completed"
        again = await talk.ask(talk.raw("rehearse: fail 413 1 time"))
        assert (again.status, again.error) == ("completed", None)
        ended = await talk.ask("rehearse: fail 413")
        assert ended.error is not None
        assert (ended.status, ended.error.kind, ended.reply) == ("failed", "invalid-request", "")
        assert "Context limit still exceeded" in ended.error.native
        assert [event.turn for event in talk.of(Compacted)] == [again.turn, ended.turn]

    @pytest.mark.req("HAR-01", "INS-07")
    async def test_no_text_is_a_command_or_pulls_in_a_skill(self, stage: Stage) -> None:
        place = stage.folder / "work" / ".agents" / "skills" / "tea"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text("---\nname: tea\ndescription: Tea.\n---\nTHE BODY\n", encoding="utf-8")
        talk = await stage.open()
        for text in (
            "/tea and more",
            " \n/tea",
            "/compact",
            "/clear",
            "/prompts",
            "say /tea",
            "@tea",
            "flag \U000e0067.",
        ):
            turn = talk.raw(text)
            assert (await talk.ask(turn)).status == "completed"
            assert end_of_newest_user_message(stage.requests()[-1], self.kind) == turn.text
            assert b"THE BODY" not in stage.requests()[-1].raw
        # That the program would have done so is what makes the rest mean something.
        await talk.ask(attrs.evolve(talk.raw("x"), text="/tea and more"))
        assert b"THE BODY" in stage.requests()[-1].raw

    @pytest.mark.req("HAR-03", "PRM-01")
    async def test_an_interrupt_while_a_person_is_asked_leaves_a_usable_session(self, stage: Stage) -> None:
        talk = await stage.open(policy="ask")
        made = stage.folder / "work" / "made.txt"
        turn = await talk.send(f"rehearse: call {own_call(made)}\nrehearse: say Never said.")
        asked = await talk.until(PermissionRequested, turn=turn)
        assert (asked.tool, asked.read_only) == ("write", False)
        await talk.session.interrupt()
        assert (await talk.until_ended(turn)).status == "interrupted"
        with pytest.raises(HarnessError):
            await talk.session.answer(asked.request, "allow")
        assert (await talk.ask("rehearse: say Again.")).reply == "Again."
        assert not made.exists()

    @pytest.mark.req("PRM-01", "HAR-03")
    async def test_each_session_has_the_tools_of_its_own_policy(self, stage: Stage) -> None:
        policies: tuple[Policy, ...] = ("plugin-tools-only", "all", "ask", "plugin-tools-only")
        talks = [await stage.open(policy=policy, tools=StageTools().all) for policy in policies]
        offered: list[set[str]] = []
        for talk in talks:
            await talk.ask("Hello.")
            offered.append({name for name in offered_tools(stage.requests()[-1]) if not name.startswith("mcp__")})
        own = {"edit", "read_image", "shell", "tree", "write"}
        assert offered == [set(), own, own, set()]
        made = stage.folder / "work" / "made.txt"
        assert (await talks[1].ask(f"rehearse: call {own_call(made)}\nrehearse: say Done.")).reply == "Done."
        assert made.exists()
        assert talks[1].of(PermissionRequested) == []
        # A conversation goes on under the policy of its new session, not under that in which it began.
        again = await stage.open(policy="plugin-tools-only", resume=talks[1].session.native_id)
        await again.ask("Hello.")
        assert offered_tools(stage.requests()[-1]) == []

    @pytest.mark.req("PRM-01")
    async def test_a_plugins_tool_is_asked_about_once_and_by_the_host(self, stage: Stage) -> None:
        talk = await stage.open(policy="ask", tools=StageTools().all)
        ended = await talk.ask('rehearse: call mcp__stage__remember {"fact": "tea"}\nrehearse: report')
        assert "nobody is there to answer" in ended.reply
        assert "drawn" in (await talk.ask("rehearse: call mcp__stage__picture\nrehearse: report")).reply
        assert talk.of(PermissionRequested) == []

    @pytest.mark.req("SEC-02", "HAR-03")
    async def test_a_gateway_that_is_not_there_is_an_error_at_the_start(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def nowhere(*_: object) -> Gateway:
            return Gateway("http://127.0.0.1:9/nowhere", "token")

        monkeypatch.setattr(stage, "_served", nowhere)
        with pytest.raises(HarnessError, match="mcp__stage") as refused:
            await stage.open(tools=StageTools().all)
        assert refused.value.kind == "connection"

    @pytest.mark.req("HAR-03")
    async def test_a_key_without_the_name_of_a_model_is_refused_in_plain_words(self, stage: Stage) -> None:
        with pytest.raises(HarnessError, match="needs the name of a model") as refused:
            await stage.open(model_url=None, fixed={"environ": {"OPENAI_API_KEY": "secret", "PATH": "/bin"}})
        assert refused.value.kind == "invalid-request"

    @pytest.mark.req("ASM-05")
    async def test_names_of_every_shape_are_the_wire_names(self, stage: Stage) -> None:
        async def call(call_id: str, name: str, arguments: JsonObject) -> ToolResult:
            return ToolResult((Text(f"called {name}"),))

        async def handler(arguments: JsonObject, call: ToolCall) -> ToolResult:
            raise AssertionError("the gateway calls")

        names = [wire_name(plugin, tool) for plugin, tool in PLACES]
        tools = tuple(Tool(name, "A tool.", {"type": "object", "properties": {}}, handler) for name in sorted(names))
        gateway = ToolGateway()
        address, revoke = await gateway.serve(tools, call)
        try:
            spec = attrs.evolve(spec_for(self.kind, stage.folder, stage.rehearsal.url), tools=tools)
            access = SessionAccess(ProgramHost(stage.children, spec.session), spec.policy)
            access.gateway = address
            talk = Talk(await self.kind.make().open(spec, access), spec)
            for name in names:
                assert f"called {name}" in (await talk.ask(f"rehearse: call {name} {{}}\nrehearse: report")).reply
            assert sorted(offered_tools(stage.requests()[-1])) == sorted(names)
            await talk.close()
        finally:
            revoke()
            await gateway.close()

    @pytest.mark.req("HAR-03")
    async def test_what_was_said_before_is_not_told_again(self, stage: Stage) -> None:
        first = await stage.open(tools=StageTools().all)
        await first.ask("rehearse: say Old words.\nrehearse: and call mcp__stage__picture\nrehearse: say More.")
        await first.close()
        again = await stage.open(resume=first.session.native_id)
        assert (await again.ask("rehearse: say New.")).reply == "New."
        assert {type(event) for event in again.events} == {TurnStarted, TextDelta, TurnEnded}
        assert "".join(event.text for event in again.of(TextDelta)) == "New."
        assert contains_text(stage.requests()[-1], "Old words.")

    @pytest.mark.req("HAR-03")
    async def test_a_line_that_is_too_long_ends_the_session(self, stage: Stage) -> None:
        talk = await stage.open(fixed={"limit_bytes": 64 * 1024}, tools=StageTools().all)
        call = f"call mcp__stage__remember {json.dumps({'fact': 'x' * 100_000})}"
        turn = await talk.send(talk.raw(f"rehearse: {call}\nrehearse: say Never said."))
        ended = await talk.until_ended(turn)
        assert ended.error is not None
        assert (ended.status, ended.error.kind) == ("failed", "unknown")
        assert (await talk.until(SessionEnded)).error == ended.error
        assert stage.programs(talk) == []

    @pytest.mark.req("HAR-01", "HAR-03")
    async def test_a_model_that_goose_asks_over_responses(self, stage: Stage) -> None:
        talk = await stage.open(model="gpt-5", effort="low", tools=StageTools().all)
        turn = talk.composed('rehearse: call mcp__stage__remember {"fact": "tea"}\nrehearse: say Kept.')
        assert (await talk.ask(turn)).reply == "Kept."
        newest = stage.requests()[-1]
        assert newest.path == "/v1/responses"
        assert isinstance(newest.body, dict)
        assert newest.body["reasoning"]["effort"] == "low"
        text, behind = newest_user_texts(newest)
        assert text == turn.text == newest.newest_user_text
        assert re.fullmatch(self.kind.behind.removeprefix(r"\n"), behind, re.DOTALL)
        assert talk.of(ToolReturned)[-1].text == "kept tea for main"
        for directive, kind, status in RESPONSES_FAULTS:
            ended = await talk.ask(f"rehearse: {directive}")
            assert ended.error is not None, directive
            assert (ended.error.kind, ended.error.status, ended.reply) == (kind, status, ""), directive
        assert (await talk.ask("rehearse: say Alive.")).reply == "Alive."

    @pytest.mark.req("HAR-03", "AGP-02")
    async def test_a_tool_that_runs_for_longer_than_a_model_may_be_silent_is_waited_for(self, stage: Stage) -> None:
        talk = await stage.open(fixed={"idle_s": 0.9}, tools=StageTools().all)
        ended = await talk.ask("rehearse: call mcp__stage__slow {}\nrehearse: say Done.")  # it takes a second
        assert (ended.status, ended.reply, ended.error) == ("completed", "Done.", None)
        assert talk.of(ToolReturned)[-1].text == "at last"

    @pytest.mark.req("HAR-03", "AGP-02")
    async def test_an_image_reaches_a_model_of_which_goose_knows_that_it_sees(self, stage: Stage) -> None:
        talk = await stage.open(model="gpt-4o", tools=StageTools().all)
        assert (await talk.ask("rehearse: call mcp__stage__picture\nrehearse: say Seen.")).reply == "Seen."
        assert base64.b64encode(PNG) in stage.requests()[-1].raw


@given(st.text(max_size=60) | st.text(alphabet=st.sampled_from("/e\u0301\u212b \n\U000e0041\u2060"), max_size=12))
@pytest.mark.req("HAR-01")
def test_what_is_encoded_encodes_to_itself_and_is_no_command(text: str) -> None:
    once = encoded(text)
    assert encoded(once) == once
    assert not once.lstrip().startswith("/")
    assert unicodedata.is_normalized("NFC", once)


@pytest.mark.program("goose")
@pytest.mark.req("SEC-02")
def test_its_login_is_kept_in_its_folder_and_stands_where_no_model_is_named(tmp_path: Path) -> None:
    from harnesses.goose import GooseHarness

    given_to_host = {"OPENAI_API_KEY": "secret", "PATH": "/bin"}
    harness = GooseHarness(programs=programs(), environ=given_to_host)
    command = harness.login(tmp_path)
    assert command.argv[-1] == "configure"
    assert command.env["GOOSE_PATH_ROOT"] == str(tmp_path)
    assert "secret" not in command.env.values()
    assert not harness.logged_in(tmp_path)
    spec = attrs.evolve(spec_for(GOOSE, tmp_path, ""), model_url=None, config_dir=tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("GOOSE_PROVIDER: openai\n", encoding="utf-8")
    assert harness.logged_in(tmp_path)
    own = environment(spec, given_to_host)
    assert not own.keys() & {"GOOSE_PROVIDER", "GOOSE_MODEL", "OPENAI_API_KEY"}
    named = environment(attrs.evolve(spec, model="gpt-5"), given_to_host)
    assert (named["GOOSE_PROVIDER"], named["GOOSE_MODEL"], named["OPENAI_API_KEY"]) == ("openai", "gpt-5", "secret")


@pytest.mark.parametrize(
    ("url", "host", "path", "key"),
    [
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434", "v1/chat/completions", LOOPBACK_KEY),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "v1/chat/completions", LOOPBACK_KEY),
        ("https://models.example/openai/v1", "https://models.example", "openai/v1/chat/completions", "secret"),
    ],
)
@pytest.mark.req("HAR-01", "SEC-02")
def test_an_endpoint_is_asked_at_its_own_path_with_the_key_that_it_may_have(
    url: str, host: str, path: str, key: str, tmp_path: Path
) -> None:
    spec = spec_for(GOOSE, tmp_path, url)
    given_to_it = environment(spec, {"OPENAI_API_KEY": "secret", "HTTPS_PROXY": "x"})
    assert (given_to_it["OPENAI_HOST"], given_to_it["OPENAI_BASE_PATH"]) == (host, path)
    assert given_to_it["OPENAI_API_KEY"] == key
    assert "HTTPS_PROXY" not in given_to_it
