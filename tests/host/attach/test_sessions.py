"""The client, the listener and the ledger together: the real client against a real host, as the program runs it."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from buzz_author.sections import parse
from buzz_host.attach.attaching import Target, attach, detach
from buzz_host.attach.handing import ANSWER_BUDGET_S
from buzz_host.attach.listener import AttachListener, endpoint_line, listening
from buzz_host.attach.parts import FRAME
from buzz_host.attach.registry import HARNESS, Places
from buzz_host.attach.snapshots import write_snapshots
from buzz_host.attach.spool import bring_in, waiting
from buzz_host.ledger import TurnView
from buzz_host.services.audit import Audit
from buzz_host.services.host import Host
from buzz_host.services.plugins import switch
from buzz_host.settings import Home
from tests.host.attach.conftest import Answer, Ask, hook_input, hooks_of, write_plugin

pytestmark = [pytest.mark.anyio, pytest.mark.req("AUT-03")]

DEADLINE_S = 20.0


@asynccontextmanager
async def serving(home: Home) -> AsyncIterator[AttachListener]:
    """A host with the listener of attached sessions."""
    async with Host(home.root) as host:
        listener = AttachListener()
        await listener.start(host)
        try:
            yield listener
        finally:
            await listener.stop()


async def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        await asyncio.sleep(0.02)


async def all_asked(ask: Ask, target: Target, octets: bytes, **more: str) -> list[Answer]:
    """All hooks of a settings file for one prompt, at the same time, as the program runs them."""
    commands = hooks_of(target.file)
    return list(await asyncio.gather(*(asyncio.to_thread(ask, command, octets, **more) for command in commands)))


def quiet(answers: list[Answer]) -> bool:
    return all((each.code, each.err) == (0, b"") for each in answers)


def turns(home: Home) -> list[TurnView]:
    """The turns of the ledger, oldest first; and the ledger is whole."""
    audit = Audit(home)
    breaks: list[object] = []
    audit.verify(None, breaks.append)
    assert breaks == []
    return [audit.turn(row.turn) for row in reversed(audit.turns(limit=1000))]


async def test_a_prompt_carries_what_holds_now_and_the_ledger_has_it(
    opened: Home, target: Target, ask: Ask, project: Path
) -> None:
    write_plugin(opened, "style", "Write short.")
    write_plugin(opened, "only-dev", "For dev.", when="lambda agent: agent.name == 'dev'")
    write_plugin(
        opened,
        "place",
        "Here.",
        when=f"lambda agent: (str(agent.cwd), agent.harness) == ({str(project)!r}, 'claude (attached)')",
    )
    attach(opened, target)
    prompt, session = str(uuid4()), str(uuid4())
    async with serving(opened):
        answers = await all_asked(ask, target, hook_input(prompt_id=prompt, session=session, cwd=project))
        assert quiet(answers)
        first, second = answers
        assert [each.body for each in parse(first.text)] == ["Here.", "Write short."]
        assert second.out == b""
        assert first.text.startswith(FRAME.format(part=""))
        switch(opened, "style", on=False)
        switch(opened, "only-dev", on=True, agent="dev")
        attach(opened, target, agent="dev")
        (again, _) = await all_asked(ask, target, hook_input(session=session, cwd=project))
        assert [each.body for each in parse(again.text)] == ["For dev.", "Here."]
    one, two = turns(opened)
    assert (one.row.turn, one.row.session, one.row.agent, one.row.harness) == (prompt, session, "main", HARNESS)
    assert (one.row.status, one.row.kind, one.message_ids) == ("handed over", "message", (prompt,))
    assert one.text == first.text
    assert one.handed_over is not None
    assert (one.handed_over.by, one.handed_over.cwd, one.handed_over.entries) == ("host", str(project), (first.text,))
    assert [(each.plugin, each.id, each.body) for each in one.sections] == [
        ("place", "one", "Here."),
        ("style", "one", "Write short."),
    ]
    assert {(each.plugin, each.reason) for each in one.left_out} == {("only-dev", "when-false")}
    assert (two.row.agent, two.text) == ("dev", again.text)
    assert ("style", "plugin-off") in {(each.plugin, each.reason) for each in two.left_out}
    assert {row.turn for row in Audit(opened).turns(session=session[:8])} == {prompt, two.row.turn}


async def test_what_does_not_fit_into_one_entry_goes_into_the_next(opened: Home, target: Target, ask: Ask) -> None:
    for number in range(6):
        write_plugin(opened, f"p{number}", f"{number} " + "é" * 2000)
    attach(opened, target, entries=3)
    async with serving(opened):
        answers = await all_asked(ask, target, hook_input())
    assert quiet(answers)
    bodies = [each.body[0] for answer in answers for each in parse(answer.text)]
    assert sorted(bodies) == list("012345")
    assert ["(part 1 of 2)" in answers[0].text, "(part 2 of 2)" in answers[1].text, answers[2].out] == [True, True, b""]
    (turn,) = turns(opened)
    assert turn.handed_over is not None
    assert turn.handed_over.entries == (answers[0].text, answers[1].text)
    assert turn.row.status == "handed over"


async def test_what_fits_nowhere_is_said_in_the_text_and_in_the_ledger(opened: Home, target: Target, ask: Ask) -> None:
    for number in range(6):
        write_plugin(opened, f"p{number}", f"{number} " + "x" * 4000)
    attach(opened, target, entries=1)
    async with serving(opened):
        (answer,) = await all_asked(ask, target, hook_input())
    assert answer.text.endswith("4 more did not fit here and were left out: p2/one, p3/one, p4/one, p5/one.")
    (turn,) = turns(opened)
    assert [(each.plugin, each.reason) for each in turn.left_out] == [(f"p{n}", "no-room") for n in range(2, 6)]
    assert "--entries adds room" in (turn.left_out[0].detail or "")


async def test_a_prompt_is_recorded_once_however_many_entries_ask(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target, entries=8)
    async with serving(opened):
        answers = await all_asked(ask, target, hook_input())
    assert len(answers) == 8
    assert len(turns(opened)) == 1


@pytest.mark.parametrize("served", [True, False])
async def test_messages_that_are_typed_while_a_turn_runs_are_turns_of_their_own(
    opened: Home, target: Target, ask: Ask, served: bool
) -> None:
    """Claude Code gives them the id of the turn that runs; each was handed what held when it was typed."""
    write_plugin(opened, "style", "Write short.")
    write_plugin(opened, "other", "Be kind. " + "x" * 4000)
    write_plugin(opened, "third", "Be there. " + "x" * 4000)
    attach(opened, target)
    await write_snapshots(opened)
    prompt, session = str(uuid4()), str(uuid4())
    typed = ["go on", "go on", "and stop"]

    async def all_of_them() -> None:
        for number, text in enumerate(typed):
            switch(opened, "style", on=number % 2 == 0)
            if not served:
                await write_snapshots(opened)
            octets = hook_input(prompt=text, prompt_id=prompt, session=session)
            answers = await all_asked(ask, target, octets)
            assert ("Write short." in answers[0].text + answers[1].text) == (number % 2 == 0)

    if served:
        async with serving(opened):
            await all_of_them()
    else:
        await all_of_them()
        assert await asyncio.to_thread(bring_in, opened) == 3
    made = turns(opened)
    assert [[each.plugin for each in turn.sections] for turn in made] == [
        ["other", "style", "third"],
        ["other", "third"],
        ["other", "style", "third"],
    ]
    assert {turn.message_ids for turn in made} == {(prompt,)}
    assert [turn.row.turn == prompt for turn in made] == [served, False, False]
    assert {turn.row.status for turn in made} == {"handed over"}


async def test_a_prompt_without_anything_to_say_prints_nothing_and_is_recorded(
    opened: Home, target: Target, ask: Ask
) -> None:
    write_plugin(opened, "style", "Write short.", when="lambda agent: False")
    attach(opened, target)
    async with serving(opened):
        answers = await all_asked(ask, target, hook_input())
    assert quiet(answers)
    assert [each.out for each in answers] == [b"", b""]
    (turn,) = turns(opened)
    assert (turn.sections, turn.text, [each.reason for each in turn.left_out]) == ((), "", ["when-false"])


async def test_a_note_is_carried_once(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.", more="    ctx.agents.addNote('main', 'Once only.')\n")
    attach(opened, target)
    async with serving(opened):
        (first, _) = await all_asked(ask, target, hook_input())
        (second, _) = await all_asked(ask, target, hook_input())
    assert [each.tag for each in parse(first.text)] == ["plugin-note", "plugin-instructions"]
    assert [each.tag for each in parse(second.text)] == ["plugin-instructions"]


async def test_without_a_host_the_last_set_is_handed_over_and_recorded_afterwards(
    opened: Home, target: Target, ask: Ask, project: Path
) -> None:
    for number in range(3):
        write_plugin(opened, f"p{number}", f"{number} " + "x" * 4000)
    attach(opened, target)
    await write_snapshots(opened)
    octets = hook_input(cwd=project)
    answers = await all_asked(ask, target, octets)
    assert quiet(answers)
    assert [each.body[0] for answer in answers for each in parse(answer.text)] == ["0", "1", "2"]
    assert waiting(opened) == 2
    # What was handed over is what is recorded, although another set holds by the time it is.
    switch(opened, "p1", on=False)
    await write_snapshots(opened)
    assert await asyncio.to_thread(bring_in, opened) == 1
    assert waiting(opened) == 0
    (turn,) = turns(opened)
    assert turn.handed_over is not None
    assert (turn.handed_over.by, turn.handed_over.entries) == ("client", tuple(each.text for each in answers))
    assert (turn.row.status, turn.handed_over.cwd) == ("handed over", str(project))
    assert [each.plugin for each in turn.sections] == ["p0", "p1", "p2"]
    (after, _) = await all_asked(ask, target, hook_input())
    assert [each.body[0] for each in parse(after.text)] == ["0", "2"]


async def test_a_start_of_the_host_brings_the_notes_in(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    await write_snapshots(opened)
    await all_asked(ask, target, hook_input())
    async with serving(opened):
        assert waiting(opened) == 0
    assert [turn.handed_over.by for turn in turns(opened) if turn.handed_over] == ["client"]


async def test_a_note_that_was_brought_in_and_not_removed_is_no_second_turn(
    opened: Home, target: Target, ask: Ask
) -> None:
    """The process that brings notes in may be killed between the ledger and the removal."""
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    await write_snapshots(opened)
    await all_asked(ask, target, hook_input(prompt_id="not a uuid"))
    await all_asked(ask, target, hook_input())
    kept = {each: each.read_bytes() for each in Places(opened).spool.iterdir()}
    assert await asyncio.to_thread(bring_in, opened) == 2
    for path, content in kept.items():
        path.write_bytes(content)
    assert await asyncio.to_thread(bring_in, opened) == 0
    assert (waiting(opened), len(turns(opened))) == (0, 2)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"half a no",
        b"2 aa 1 bb 1.0 {}\n",
        b"1 ../x 1 bb 1.0 {}\n",
        b"1 aa 99 bb 1.0 {}\n",
        b"1 aa 1 bb inf {}\n",
        b"1 aa 1 bb 1.0 {}\n",
    ],
)
async def test_a_note_that_cannot_be_understood_is_kept_and_stops_nobody(
    opened: Home, target: Target, ask: Ask, content: bytes
) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    await write_snapshots(opened)
    await all_asked(ask, target, hook_input())
    (Places(opened).spool / "0-broken").write_bytes(content)
    assert await asyncio.to_thread(bring_in, opened) == 1
    assert [each.name for each in Places(opened).spool.iterdir()] == ["0-broken.unreadable"]
    assert waiting(opened) == 0


async def test_the_set_on_disk_follows_the_switches_while_a_host_runs(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    current = Places(opened).snapshots(attach(opened, target).attachment.id) / "current"
    async with serving(opened):
        await until(current.exists)
        first = current.read_text(encoding="ascii")
        switch(opened, "style", on=False)
        await until(lambda: current.read_text(encoding="ascii") != first)
        switch(opened, "style", on=True)
        await until(lambda: current.read_text(encoding="ascii") == first)
    (answer, _) = await all_asked(ask, target, hook_input())
    assert [each.body for each in parse(answer.text)] == ["Write short."]


async def test_a_slow_plugin_costs_its_own_words_and_no_time_of_the_persons(
    opened: Home, target: Target, ask: Ask
) -> None:
    write_plugin(opened, "quick", "Quick.")
    write_plugin(opened, "slow", "Slow.", when="lambda agent: time.sleep(5) or True")
    write_plugin(opened, "stuck", "Stuck.", more="    while True: pass\n")
    for number in range(8):
        write_plugin(opened, f"tired{number}", "Tired.", when="lambda agent: time.sleep(0.2) or True")
    attach(opened, target)
    async with serving(opened):
        for _ in range(2):
            began = time.monotonic()
            answers = await all_asked(ask, target, hook_input())
            assert time.monotonic() - began < ANSWER_BUDGET_S + 1
            assert quiet(answers)
            assert "Quick." in answers[0].text
            assert "Slow." not in answers[0].text
            assert "Stuck." not in answers[0].text
    reasons = {(each.plugin, each.reason) for each in turns(opened)[0].left_out}
    assert ("slow", "when-timeout") in reasons
    assert ("stuck", "plugin-starting") in reasons


async def test_a_host_that_hangs_is_given_up_and_the_last_set_handed_over(
    opened: Home, target: Target, ask: Ask, tmp_path: Path
) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    await write_snapshots(opened)
    process = started_host(opened)
    try:
        await until(lambda: listening(opened) == process.pid)
        os.kill(process.pid, 19)  # stopped: it neither answers nor closes
        began = time.monotonic()
        answers = await all_asked(ask, target, hook_input())
        assert time.monotonic() - began < 4.0
        assert quiet(answers)
        assert [each.body for each in parse(answers[0].text)] == ["Write short."]
        os.kill(process.pid, 18)
        await until(lambda: bool(Audit(opened).turns()) and Audit(opened).turns()[0].status == "failed")
    finally:
        ended(process)
    await asyncio.to_thread(bring_in, opened)
    late, noted = turns(opened)
    # The host recorded what it was about to hand over, then that nobody took it; the note says what was handed over.
    assert late.row.status == "failed"
    assert late.error is not None
    assert "no longer waited" in late.error.native
    assert noted.handed_over is not None
    assert (noted.row.status, noted.handed_over.by, noted.message_ids) == ("handed over", "client", late.message_ids)


async def test_a_killed_host_leaves_sessions_with_the_last_set(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    process = started_host(opened)
    try:
        await until(lambda: listening(opened) == process.pid)
        (online, _) = await all_asked(ask, target, hook_input())
        current = Places(opened).snapshots(attach(opened, target).attachment.id) / "current"
        await until(current.exists)
        process.kill()
        process.wait()
        assert Places(opened).endpoint.exists()
        assert listening(opened) is None
        began = time.monotonic()
        (offline, _) = await all_asked(ask, target, hook_input())
        assert time.monotonic() - began < 1.0
    finally:
        ended(process)
    assert online.text == offline.text != ""


async def test_a_stranger_on_the_port_of_a_dead_host_gets_no_token(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    await write_snapshots(opened)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        stranger.settimeout(0.5)
        for process, started in ((999_999_999, "1"), (os.getpid(), "1"), (1, "")):
            Places(opened).endpoint.write_text(f"1 {port} secret {process} {started}\n", encoding="ascii")
            answers = await all_asked(ask, target, hook_input())
            assert quiet(answers)
            assert "Write short." in answers[0].text
            with pytest.raises(TimeoutError):
                stranger.accept()


@pytest.mark.req("SEC-01")
async def test_the_listener_tells_nobody_without_the_token_anything(opened: Home, target: Target) -> None:
    write_plugin(opened, "style", "Write short.")
    made = attach(opened, target).attachment
    async with serving(opened):
        endpoint = Places(opened).endpoint
        assert stat.S_IMODE(endpoint.stat().st_mode) == 0o600
        _, port, token, pid, _ = endpoint.read_text(encoding="ascii").split()
        assert int(pid) == os.getpid()

        async def said(request: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(request)
            writer.write_eof()
            try:
                return await asyncio.wait_for(reader.read(), DEADLINE_S)
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

        body = hook_input()
        good = b"BUZZ1 %s %s 1 %d\n%s" % (token.encode(), made.id.encode(), len(body), body)
        assert (await said(good)).startswith(b"BUZZ1 ")
        for request in (
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\n\r\n" + good,
            good.replace(token.encode(), b"x" * len(token)),
            good.replace(token.encode(), token[:-1].encode()),
            good.replace(b"BUZZ1", b"BUZZ2"),
            good.replace(made.id.encode(), b"0" * len(made.id)),
            b"BUZZ1 %s %s 0 0\n" % (token.encode(), made.id.encode()),
            b"BUZZ1 %s %s 9 0\n" % (token.encode(), made.id.encode()),
            b"BUZZ1 %s %s 1 -1\n" % (token.encode(), made.id.encode()),
            b"BUZZ1 %s %s 1 99999999\n" % (token.encode(), made.id.encode()),
            b"BUZZ1 %s %s 1 900\n{}" % (token.encode(), made.id.encode()),
            b"x" * 200_000,
            b"",
        ):
            assert await said(request) == b""
        assert (await said(good.replace(body, hook_input()))).startswith(b"BUZZ1 ")
    assert not endpoint.exists()


@pytest.mark.req("SEC-01", "SEC-02")
async def test_the_token_is_in_no_argument_no_environment_and_no_output(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    async with serving(opened):
        token = Places(opened).endpoint.read_text(encoding="ascii").split()[2].encode("ascii")
        answers = await all_asked(ask, target, hook_input(), BASH_ENV="/dev/stdout", SHELLOPTS="xtrace")
        assert quiet(answers)
        assert all(token not in each.out + each.err for each in answers)
        assert "Write short." in answers[0].text
    assert not any(token in each.read_bytes() for each in opened.root.rglob("*") if each.is_file())
    # A client that waits for its answer is looked at from outside.
    with socket.create_server(("127.0.0.1", 0)) as host:
        host.settimeout(DEADLINE_S)
        line = endpoint_line(host.getsockname()[1], token.decode("ascii"))
        Places(opened).endpoint.write_text(line, encoding="ascii")
        client = started_client(target)
        assert client.stdin is not None
        client.stdin.write(hook_input())
        client.stdin.close()
        connection, _ = await asyncio.to_thread(host.accept)
        with connection:
            assert token in await asyncio.to_thread(connection.recv, 4096)
            for name in ("cmdline", "environ"):
                assert token not in Path(f"/proc/{client.pid}/{name}").read_bytes()
            connection.sendall(b"BUZZ1 0\n")
            assert await asyncio.to_thread(connection.recv, 1) in (b"+", b"{")
        assert client.stdout is not None
        assert client.stdout.read() == b""
        client.stdout.close()
        assert client.wait() == 0


@pytest.mark.parametrize(
    "name", ["plain", "with space", 'it\'s "quoted"', "$HOME `id` \\ *", "Ünïcode 你好 😀", "-dash"]
)
async def test_any_home_will_do(tmp_path: Path, project: Path, ask: Ask, name: str) -> None:
    home = Home.resolve(tmp_path / name / "buzz")
    write_plugin(home, "style", "Write short.")
    target = Target.of(project, user=False)
    attach(home, target)
    await write_snapshots(home)
    (offline, _) = await all_asked(ask, target, hook_input(), HOME=str(tmp_path / name))
    async with serving(home):
        (online, _) = await all_asked(ask, target, hook_input(), HOME=str(tmp_path / name))
    assert offline.text == online.text != ""
    assert len(turns(home)) == 2
    detach(home, target)
    assert list(project.iterdir()) == []


@pytest.mark.parametrize(
    "prompt", ["x" * 1_000_000, "é😀\u2028" * 100_000, 'a "prompt": \\ \n \t \x01 ,"prompt":"x"', "", "\ud800"]
)
async def test_any_prompt_will_do(opened: Home, target: Target, ask: Ask, prompt: str) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    identifier = str(uuid4())
    async with serving(opened):
        answers = await all_asked(ask, target, hook_input(prompt=prompt, prompt_id=identifier))
    assert quiet(answers)
    assert "Write short." in answers[0].text
    assert [turn.row.turn for turn in turns(opened)] == [identifier]
    # The person's words are nothing that Buzz needs here, and nothing that it keeps.
    database = opened.database.read_bytes()
    assert len(prompt) < 40 or prompt[:40].encode("utf-8", "replace") not in database


@pytest.mark.parametrize(
    "octets", [b"", b"\n", b"{", b"null", b'{"session_id": 7}', b"\xff\xfe", b'{"cwd":"/a\\"b,\\"prompt\\":"}']
)
async def test_whatever_the_program_says_it_gets_the_set(opened: Home, target: Target, ask: Ask, octets: bytes) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    await write_snapshots(opened)
    (offline, _) = await all_asked(ask, target, octets)
    async with serving(opened):
        (online, _) = await all_asked(ask, target, octets)
    assert offline.text == online.text != ""
    assert (offline.code, offline.err) == (0, b"")
    assert len(turns(opened)) == 2


async def test_a_home_that_cannot_be_written_hands_nothing_over_that_could_not_be_recorded(
    opened: Home, target: Target, ask: Ask
) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target)
    await write_snapshots(opened)
    spool = Places(opened).spool
    spool.rmdir()
    answers = await all_asked(ask, target, hook_input())
    assert quiet(answers)
    assert [each.out for each in answers] == [b"", b""]
    spool.symlink_to("/dev/full")
    assert [each.out for each in await all_asked(ask, target, hook_input())] == [b"", b""]


@pytest.mark.parametrize("damage", ["gone", "empty", "speakers gone", "garbage"])
async def test_a_broken_home_is_silent(opened: Home, target: Target, ask: Ask, damage: str) -> None:
    write_plugin(opened, "style", "Write short.")
    made = attach(opened, target).attachment
    await write_snapshots(opened)
    places = Places(opened)
    commands = target
    match damage:
        case "gone":
            for each in places.snapshots(made.id).iterdir():
                if each.is_file():
                    each.unlink()
        case "empty":
            (places.snapshots(made.id) / "current").write_bytes(b"")
        case "speakers gone":
            places.speakers.unlink()
        case _:
            for path in (places.endpoint, places.speakers, places.snapshots(made.id) / "current"):
                path.write_bytes(os.urandom(300))
    answers = await all_asked(ask, commands, hook_input())
    assert quiet(answers)
    assert ("Write short." in answers[0].text) == (damage == "speakers gone")


async def test_of_several_attachments_the_nearest_speaks_and_the_others_are_silent(
    opened: Home, project: Path, ask: Ask, tmp_path: Path
) -> None:
    """Claude Code runs the hooks of the folder, its git checkout, a worktree's main checkout, and the person."""
    write_plugin(opened, "style", "Write short.")
    sub, other, tree = project / "sub", tmp_path / "other", tmp_path / "tree"
    for folder in (sub, sub / "deep", other, tree):
        folder.mkdir()
    (project / ".git").mkdir()
    (tree / ".git").write_text(f"gitdir: {project}/.git/worktrees/tree\n", encoding="utf-8")
    targets = {
        "user": Target.of(None, user=True),
        "root": Target.of(project, user=False),
        "sub": Target.of(sub, user=False),
    }
    for each in targets.values():
        attach(opened, each)
    await write_snapshots(opened)

    async def speakers(folder: Path, *running: str) -> list[str]:
        octets = hook_input(cwd=folder)
        spoke = []
        for name in running:
            answer = await asyncio.to_thread(ask, hooks_of(targets[name].file)[0], octets, folder)
            assert (answer.code, answer.err) == (0, b"")
            if answer.text:
                spoke.append(name)
        return spoke

    async def all_of_it() -> None:
        assert await speakers(project, "user", "root") == ["root"]
        assert await speakers(sub, "user", "root", "sub") == ["sub"]
        assert await speakers(sub / "deep", "user", "root") == ["root"]
        assert await speakers(tree, "user", "root") == ["root"]
        assert await speakers(other, "user") == ["user"]

    await all_of_it()
    async with serving(opened):
        await all_of_it()
        detach(opened, targets["root"])
        assert await speakers(project, "user") == ["user"]
    assert not any(turn.row.status == "failed" for turn in turns(opened))


async def test_a_hook_that_is_ended_is_not_taken_for_one_that_was_handed_over(
    opened: Home, target: Target, project: Path
) -> None:
    write_plugin(opened, "style", "Write short.")
    made = attach(opened, target).attachment
    async with serving(opened):
        _, port, token, _, _ = Places(opened).endpoint.read_text(encoding="ascii").split()
        body = hook_input()
        _, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"BUZZ1 %s %s 1 %d\n%s" % (token.encode(), made.id.encode(), len(body), body))
        await writer.drain()
        writer.close()
        await until(lambda: bool(Audit(opened).turns()) and Audit(opened).turns()[0].status == "failed")
    (turn,) = turns(opened)
    assert turn.error is not None
    assert turn.error.native == "entry 1 was not taken: the hook's client no longer waited"


async def test_two_hundred_prompts_at_once_are_all_recorded(opened: Home, target: Target, ask: Ask) -> None:
    write_plugin(opened, "style", "Write short.")
    attach(opened, target, entries=1)
    await write_snapshots(opened)
    count = 200 if os.environ.get("BUZZ_SOAK") == "1" else 40
    async with serving(opened):
        answers = await asyncio.gather(*(all_asked(ask, target, hook_input()) for _ in range(count)))
    assert all(quiet(each) for each in answers)
    assert all("Write short." in each[0].text for each in answers)
    await asyncio.to_thread(bring_in, opened)
    handed = [turn for turn in turns(opened) if turn.row.status == "handed over"]
    assert len({turn.message_ids for turn in handed}) == count


def started_client(target: Target) -> subprocess.Popen[bytes]:
    """The first hook of a settings file, before it has its input."""
    return subprocess.Popen(hooks_of(target.file)[0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=target.project)


def started_host(home: Home) -> subprocess.Popen[bytes]:
    """A host with its listener in a process of its own, that can be stopped and killed."""
    program = (
        "import asyncio, sys\n"
        "from buzz_host.attach.listener import AttachListener\n"
        "from buzz_host.services.host import Host\n"
        "async def main():\n"
        "    async with Host(sys.argv[1]) as host:\n"
        "        await AttachListener().start(host)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    root = Path(__file__).resolve().parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", program, str(home.root)], env={**os.environ, "PYTHONPATH": str(root)}
    )


def ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
