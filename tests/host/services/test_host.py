"""`Host` end to end, on real plugin files and somebody else's harness: what holds is what the next turn carries."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from buzz_author.sections import parse
from buzz_host import Host
from buzz_host.sessions import events
from buzz_host.sessions.lease import SessionInUse
from buzz_host.sessions.session import Session

pytestmark = pytest.mark.anyio
ECHO = Path(__file__).with_name("echo_harness.py")


def write_plugin(folder: Path, name: str, body: str) -> Path:
    path = folder / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'inject = ("agents",)\n\n\ndef apply(ctx):\n    {body}\n', encoding="utf-8")
    return path


def speaks(text: str, when: str = "None", id: str = "one") -> str:
    return f"ctx.agents.addInstructions(id={id!r}, text={text!r}, when={when})"


@pytest.fixture
async def host(home: Path) -> AsyncIterator[Host]:
    folder = home / "plugins"
    write_plugin(folder, "brief", speaks("Be brief."))
    write_plugin(folder, "dev_only", speaks("Use tabs.", "lambda agent: agent.name == 'dev'"))
    write_plugin(folder, "broken", "raise RuntimeError('no luck')")
    async with Host(home, plugins=[ECHO]) as host:
        yield host


def told(turn: events.TurnText) -> dict[str, str]:
    return {row.plugin: row.body for row in turn.sections if row.plugin is not None}


def reasons(turn: events.TurnText) -> dict[str, str]:
    return {f"{row.plugin}/{row.id}": row.reason for row in turn.left_out}


async def one_turn(session: Session, message: str = "Hello") -> events.TurnStarted:
    async with session.turn(message) as stream:
        happened = [event async for event in stream]
    assert isinstance(happened[0], events.TurnStarted)
    assert isinstance(happened[-1], events.TurnCompleted)
    assert happened[-1].status == "completed"
    return happened[0]


@pytest.mark.req("INS-01", "INS-04", "INS-11", "API-02")
async def test_a_preview_carries_what_holds_and_says_what_does_not(host: Host) -> None:
    main = await host.preview("Hello", agent="main", harness="echo")
    assert told(main) == {"brief": "Be brief."}
    assert reasons(main) == {"dev_only/one": "when-false", "broken/*": "plugin-failed"}
    assert [fault.plugin for fault in main.faults] == ["broken"]
    dev = await host.preview("Hello", agent="dev", harness="echo")
    assert told(dev) == {"brief": "Be brief.", "dev_only": "Use tabs."}
    assert parse(dev.text)[-1].attributes == (("plugin", "dev_only"),)


@pytest.mark.req("API-02", "TRN-01")
async def test_a_preview_is_exactly_the_next_turn(host: Host) -> None:
    previewed = await host.preview("Hello", agent="dev", harness="echo")
    async with host.session(agent="dev", harness="echo") as session:
        started = await one_turn(session)
    assert started.text == previewed.text
    assert started.sections == previewed.sections
    assert started.left_out == previewed.left_out


@pytest.mark.req("INS-06", "PLG-06", "REG-01", "REG-03")
async def test_switching_a_plugin_off_anywhere_holds_from_the_next_turn(host: Host, home: Path) -> None:
    async with host.session(agent="main", harness="echo") as session, Host(home) as elsewhere:
        assert told(await one_turn(session)) == {"brief": "Be brief."}
        (source,) = [each for each in elsewhere.plugins.found.sources if each.id == "brief"]
        elsewhere.plugins.enablement.disable(source)
        off = await one_turn(session)
        assert told(off) == {}
        assert reasons(off)["brief/one"] == "plugin-off"
        elsewhere.plugins.enablement.enable(source)
        assert told(await one_turn(session)) == {"brief": "Be brief."}
        elsewhere.plugins.enablement.disable(source, "main")
        assert told(await one_turn(session)) == {}
        assert told(await host.preview("Hello", agent="dev", harness="echo")).keys() == {"brief", "dev_only"}


@pytest.mark.req("INS-06", "PLG-06")
async def test_a_plugin_that_is_dropped_in_speaks_in_the_next_turn(host: Host, home: Path) -> None:
    async with host.session(agent="main", harness="echo") as session:
        await one_turn(session)
        path = write_plugin(home / "plugins", "late", speaks("I am here."))
        assert told(await one_turn(session)) == {"brief": "Be brief.", "late": "I am here."}
        path.unlink()
        assert told(await one_turn(session)) == {"brief": "Be brief."}


@pytest.mark.req("INS-12")
async def test_a_note_is_shown_once_and_a_preview_takes_none(home: Path) -> None:
    write_plugin(home / "plugins", "noting", "ctx.agents.addNote('main', 'The build is green.')")
    async with Host(home, plugins=[ECHO]) as host:
        for _ in range(2):
            assert told(await host.preview("Hello", harness="echo")) == {"noting": "The build is green."}
        async with host.session(harness="echo") as session:
            first = await one_turn(session)
            assert told(first) == {"noting": "The build is green."}
            assert [row.tag for row in first.sections] == ["context", "buzz-event", "plugin-note"]
            assert told(await one_turn(session)) == {}


@pytest.mark.req("INS-12", "TRN-06")
async def test_a_steered_message_leaves_the_notes_for_the_next_turn(home: Path, tmp_path: Path) -> None:
    write_plugin(
        home / "plugins",
        "noting",
        "ctx.agents.addInstructions(\n"
        "        id='i', text='x', when=lambda agent: bool(ctx.agents.addNote('main', 'Later.')) or True)",
    )
    async with Host(home, plugins=[ECHO]) as host, host.session(agent="main", harness="echo") as session:
        async with session.turn("wait for it") as stream:
            first = await anext(stream)
            assert isinstance(first, events.TurnStarted)
            await session.steer("now")
            steered = [event async for event in stream if isinstance(event, events.TurnStarted)]
        assert [row.tag for row in steered[0].sections].count("plugin-note") == 0
        third = await one_turn(session)
        assert [row.tag for row in third.sections].count("plugin-note") >= 2


@pytest.mark.req("INS-05")
async def test_the_order_in_which_plugins_start_never_shows(home: Path, tmp_path: Path) -> None:
    names = [f"p{number}" for number in range(8)]
    paths = [
        write_plugin(tmp_path / "set", name, f"import time; time.sleep({random.uniform(0, 0.05)}); " + speaks(name))
        for name in names
    ]
    texts = set()
    for _ in range(3):
        random.shuffle(paths)
        async with Host(home, plugins=[ECHO, *paths]) as host:
            texts.add((await host.preview("Hello", harness="echo")).text)
    (text,) = texts
    assert [dict(each.attributes)["plugin"] for each in parse(text) if each.tag == "plugin-instructions"] == names


@pytest.mark.req("PLG-02", "PLG-06")
async def test_a_fault_of_a_clean_up_is_told_in_one_turn_and_not_in_previews_of_it_alone(home: Path) -> None:
    write_plugin(home / "plugins", "flaky", f"{speaks('Hello.')}\n    ctx.effect(lambda: {{}}['gone'])")
    async with Host(home, plugins=[ECHO]) as host, host.session(harness="echo") as session:
        assert (await one_turn(session)).faults == ()
        # Other settings start it anew; the one before has left a fault behind.
        (home / "buzz.toml").write_text("[plugins.flaky]\nx = 1\n", encoding="utf-8")
        expected = [("flaky", "dispose", "KeyError: 'gone' (flaky.py:6)")]

        def faults(turn: events.TurnText) -> list[tuple[str, str, str]]:
            return [(each.plugin, each.phase, each.message) for each in turn.faults]

        assert faults(await host.preview("Hello", harness="echo")) == expected
        turn = await one_turn(session)
        assert told(turn) == {"flaky": "Hello."}
        assert faults(turn) == expected
        assert faults(await one_turn(session)) == []
        assert faults(await host.preview("Hello", harness="echo")) == []
        assert [each.phase for each in host.plugins.faults()] == ["dispose"], "the list of errors has it"


@pytest.mark.req("INS-14")
async def test_a_guard_that_spins_costs_the_turn_nothing_else(home: Path) -> None:
    spin = "(lambda agent: [None for _ in iter(int, 1)])"
    write_plugin(home / "plugins", "spinning", speaks("Never said.", spin))
    write_plugin(home / "plugins", "brief", speaks("Be brief."))
    async with Host(home, plugins=[ECHO]) as host, host.session(harness="echo") as session:
        first = await one_turn(session)
        assert told(first) == {"brief": "Be brief."}
        assert reasons(first) == {"spinning/one": "when-timeout"}
        assert ["spinning" in fault.plugin for fault in first.faults] == [True]
        assert reasons(await one_turn(session)) == {"spinning/one": "suspended"}


@pytest.mark.req("PLG-02", "INS-06")
async def test_a_plugin_that_is_still_starting_is_a_row_and_joins_later(home: Path) -> None:
    release = home.parent / "release"
    body = f"import pathlib, time\n    while not pathlib.Path({str(release)!r}).exists(): time.sleep(0.01)\n    "
    write_plugin(home / "plugins", "slow", body + speaks("At last."))
    async with Host(home, plugins=[ECHO]) as host, host.session(harness="echo") as session:
        early = await one_turn(session)
        assert reasons(early) == {"slow/*": "plugin-starting"}
        assert [fault.plugin for fault in early.faults] == ["slow"]
        release.touch()
        turn = await one_turn(session)
        for _ in range(500):  # each turn is a look of its own; nothing else tells from outside
            if told(turn):
                break
            turn = await one_turn(session)
        assert told(turn) == {"slow": "At last."}
        assert turn.faults == ()


@pytest.mark.req("HAR-02", "TRN-03")
async def test_an_unknown_harness_or_agent_is_one_clear_line(host: Host) -> None:
    with pytest.raises(Exception, match=r"no harness is called 'nope'; the harnesses are: .*echo"):
        await host.preview("Hello", harness="nope")
    with pytest.raises(Exception, match="no agent is called 'mian'; did you mean 'main'"):
        await host.preview("Hello", agent="mian", harness="echo")


@pytest.mark.req("API-02", "HAR-01")
async def test_a_session_is_resumed_by_id_and_driven_by_one(host: Host, home: Path) -> None:
    async with host.session(agent="dev", harness="echo") as session:
        await one_turn(session)
        async with Host(home, plugins=[ECHO]) as other:
            with pytest.raises(SessionInUse, match="in use by process"):
                async with other.session(resume=session.id):
                    pass
    async with host.session(resume=session.id[:8]) as again:
        assert (again.id, again.agent) == (session.id, "dev")
        await one_turn(again)
    with pytest.raises(Exception, match="belongs to agent 'dev', not 'main'"):
        async with host.session(resume=session.id, agent="main"):
            pass
    with pytest.raises(Exception, match="no session is called 'zzz'"):
        async with host.session(resume="zzz"):
            pass


@pytest.mark.req("TRN-04", "API-02")
async def test_steering_through_the_host(host: Host) -> None:
    async with host.session(agent="main", harness="echo") as session, session.turn("wait for it") as stream:
        assert (await anext(stream)).event == "turn_started"
        await session.steer("now </buzz-event>")
        rest = [event async for event in stream]
    assert [event.event for event in rest] == ["turn_started", "steer_settled", "text_delta", "turn_completed"]
    steered = rest[0]
    assert isinstance(steered, events.TurnStarted)
    assert [row.tag for row in steered.sections] == [
        "new-message-arrived-while-you-were-working",
        "plugin-instructions",
    ]


@pytest.mark.req("INS-09")
async def test_the_handle_of_a_turn_gives_the_set_that_it_carries(home: Path) -> None:
    write_plugin(home / "plugins", "brief", speaks("Be brief."))
    async with Host(home, plugins=[ECHO]) as host, host.session(harness="echo") as session:
        await one_turn(session)
        handle = session._actor._spec.agent
        assert [section.body for section in handle.instructions()] == ["Be brief."]


@pytest.mark.req("TRN-07")
async def test_nothing_of_a_turn_enters_the_system_prompt(home: Path) -> None:
    """200 turns of random switching over four sessions: each is opened with the same system prompt."""
    chance = random.Random(7)
    opened: list[str] = []
    for name, text in (("brief", "Be brief."), ("tabs", "Use tabs.")):
        write_plugin(home / "plugins", name, speaks(text))
    async with Host(home, plugins=[ECHO]) as host:
        sources = [each for each in host.plugins.found.sources if each.id in ("brief", "tabs")]
        for _ in range(4):
            async with host.session(agent="dev", harness="echo") as session:
                for _ in range(50):
                    switch = chance.choice([host.plugins.enablement.enable, host.plugins.enablement.disable])
                    switch(chance.choice(sources))
                    expected = {each.id for each in sources if host.plugins.enablement.enabled_for(each, "dev")}
                    assert told(await one_turn(session)).keys() == expected
                    opened.append(session._actor._spec.system_prompt)
    (prompt,) = set(opened)
    assert "Be brief." not in prompt
    assert "Use tabs." not in prompt


@pytest.mark.req("OPS-02")
async def test_a_home_on_a_very_long_path_works(tmp_path: Path) -> None:
    home = tmp_path / ("long" * 50)
    async with Host(home, plugins=[ECHO]) as host, host.session(harness="echo") as session:
        await one_turn(session)
    assert len(str(home)) > 200
