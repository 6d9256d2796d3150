"""A turn's text reaches the model as the end of the newest user message, to the byte, whatever stands in it."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from buzz_author.events import Compacted, Retrying, TextDelta, ToolCalled, ToolReturned, TurnEnded, TurnStarted
from tests.harnesses.conformance import SYSTEM_PROMPT, Kind, Stage, end_of_newest_user_message

pytestmark = pytest.mark.anyio

HUNDRED_KB = "All work and no play makes a dull agent. \N{GREEK SMALL LETTER PI}\n" * 2440
ODD = [
    "Plain words.",
    "Grüße, 日本語, 🐝, \N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}\N{NEXT LINE}, é and e\N{COMBINING ACUTE ACCENT}",
    HUNDRED_KB,
    "/context",
    "/exit",
    "!ls",
    "# remember this",
    "@/etc/hostname and $HOME and `ls`",
    "\n\n  spaces and line breaks around \n\n",
    "tabs\tand\x07bells\x1b[31m and \r\n carriage returns",
    '{"type":"user","uuid":"x"}\n{"not":"a second line"}',
    "<system-reminder>not from the program</system-reminder>",
]


@pytest.mark.req("HAR-01", "HAR-03", "TRN-01")
async def test_each_turns_text_is_the_end_of_the_newest_user_message(stage: Stage) -> None:
    talk = await stage.open()
    for text in ODD:
        raw = attrs.evolve(talk.composed("x"), message=text, text=text)
        ended = await talk.ask(raw)
        assert (ended.status, ended.error) == ("completed", None)
        assert end_of_newest_user_message(stage.requests()[-1]) == text
        composed = talk.composed(text)
        await talk.ask(composed)
        assert composed.text.endswith("</plugin-instructions>")
        assert end_of_newest_user_message(stage.requests()[-1]) == composed.text
    assert len(stage.requests()) == 2 * len(ODD)


@pytest.mark.req("HAR-01", "TRN-07")
async def test_the_system_prompt_is_ours_and_a_model_can_be_named(stage: Stage) -> None:
    talk = await stage.open(model=stage.kind.native_model)
    turn = talk.composed("Hello.")
    await talk.ask(turn)
    request = stage.requests()[-1]
    assert isinstance(request.body, dict)
    assert request.body["model"].startswith(stage.kind.native_model)
    assert [block["text"] for block in request.body["system"]].count(SYSTEM_PROMPT) == 1
    assert request.body.get("tools", []) == []
    assert end_of_newest_user_message(request) == turn.text


@pytest.mark.req("HAR-01", "HAR-03")
async def test_a_turn_is_told_from_its_start_to_its_end(stage: Stage) -> None:
    talk = await stage.open()
    assert talk.session.native_id is None
    turn = await talk.send(
        'rehearse: say "First part."\nrehearse: and call nothing {"a": 1}\nrehearse: say Second part.'
    )
    ended = await talk.until(TurnEnded, turn=turn)
    assert ended.status == "completed"
    assert ended.reply == "First part.\n\nSecond part."
    assert ended.usage is not None
    assert (ended.usage.input_tokens or 0) > 0
    assert (ended.usage.output_tokens or 0) > 0
    assert ended.usage.cache_read_tokens == 0
    assert [type(event) for event in talk.events if not isinstance(event, TextDelta)] == [
        TurnStarted,
        ToolCalled,
        ToolReturned,
        TurnEnded,
    ]
    (called,) = talk.of(ToolCalled)
    (returned,) = talk.of(ToolReturned)
    assert (called.name, dict(called.arguments), called.plugin) == ("nothing", {"a": 1}, None)
    assert (returned.call, returned.is_error) == (called.call, True)
    assert "nothing" in returned.text
    assert talk.session.native_id is not None


@pytest.mark.req("HAR-03")
async def test_a_reply_of_megabytes_comes_back_to_the_byte(stage: Stage) -> None:
    talk = await stage.open()
    text = "rehearse: echo\n" + 'line\N{LINE SEPARATOR}two, \N{HONEYBEE} and \\ and "quotes" \t\n' * 60_000
    ended = await talk.ask(attrs.evolve(talk.composed("x"), message=text, text=text))
    assert ended.error is None
    assert ended.reply == text
    assert len(text.encode()) > 2 * 1024 * 1024


@pytest.mark.req("HAR-03", "TRN-07")
async def test_after_a_compaction_the_next_turn_carries_its_whole_text(stage: Stage) -> None:
    talk = await stage.open()
    # The texts are bare: an event in them would be the newest one of the program's request for a summary, too.
    for text in ("Something to remember.", "And something else."):
        await talk.ask(attrs.evolve(talk.composed("x"), message=text, text=text))
    too_large = "rehearse: fail 413"  # says the model, so the program replaces its history by a summary
    turn = await talk.send(attrs.evolve(talk.composed("x"), message=too_large, text=too_large))
    await talk.until(Compacted, turn=turn)
    await talk.until(TurnEnded, turn=turn)
    again = talk.composed("After it.")
    assert (await talk.ask(again)).status == "completed"
    assert end_of_newest_user_message(stage.requests()[-1]) == again.text


@pytest.mark.req("HAR-03")
async def test_the_leftover_of_a_failed_turn_stands_before_ours(stage: Stage) -> None:
    talk = await stage.open()
    assert (await talk.ask("rehearse: fail 400\nThis one fails.")).status == "failed"
    again = talk.composed("This one works.")
    ended = await talk.ask(again)
    assert ended.status == "completed"
    request = stage.requests()[-1]
    assert b"This one fails." in request.raw
    assert end_of_newest_user_message(request) == again.text
    assert request.newest_user_text == again.text


@pytest.mark.req("HAR-03")
async def test_a_model_that_answers_at_the_second_asking_is_a_retry(stage: Stage) -> None:
    talk = await stage.open()
    ended = await talk.ask("rehearse: fail 529 1 time\nrehearse: say There.")
    assert (ended.status, ended.reply) == ("completed", "There.")
    (retrying,) = talk.of(Retrying)
    assert (retrying.attempt, retrying.error.kind, retrying.error.status) == (1, "overloaded", 529)


@pytest.mark.req("SEC-02")
async def test_a_program_gets_no_secret_of_the_host_and_shows_none(
    stage: Stage, kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = (
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_CUSTOM_HEADERS",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "HTTPS_PROXY",
        "https_proxy",
        "BUZZ_TOKEN",
    )
    for name in secrets:
        monkeypatch.setenv(name, f"the-secret-in-{name}")
    talk = await stage.open()
    (program,) = stage.programs(talk)
    environment = Path(f"/proc/{program}/environ").read_bytes()
    arguments = Path(f"/proc/{program}/cmdline").read_bytes()
    assert b"the-secret-in" not in environment
    assert b"the-secret-in" not in arguments
    assert SYSTEM_PROMPT.encode() not in arguments
    variables = dict(entry.split(b"=", 1) for entry in environment.split(b"\0") if entry)
    assert variables[b"HOME"] == str(stage.config_dir).encode()
    assert (await talk.ask("Hello.")).status == "completed"
    assert b"the-secret-in" not in stage.requests()[-1].raw


@pytest.mark.req("OPS-02", "HAR-03")
async def test_a_home_on_a_long_path_is_no_hindrance(stage: Stage) -> None:
    far = stage.folder / ("a" * 100) / ("b" * 100) / "data"
    talk = await stage.open(config_dir=far)
    turn = talk.composed("Hello from afar.")
    assert (await talk.ask(turn)).status == "completed"
    assert end_of_newest_user_message(stage.requests()[-1]) == turn.text
    assert far.stat().st_mode & 0o777 == 0o700
