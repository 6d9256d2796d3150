"""`buzz chat`, by a person on a terminal and by a program through a pipe, on the real Claude Code."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import BUZZ, PARROT_OPTIONS, Buzz
from tests.cli.hosts import serving
from tests.cli.terminals import Typing, typing
from tests.host.services.test_asking import CALL, NOTES

claude = pytest.mark.claude
SLOW = "rehearse: pace 0.2\\\nrehearse: say I am on it and take my time, word by word by word.\n"


@contextmanager
def chatting(environment: Mapping[str, str], work: Path, *options: str) -> Iterator[Typing]:
    with typing("chat", *options, environment=environment, work=work) as chat:
        chat.until("> ")
        yield chat


def agent_that(permissions: str, home: Path) -> None:
    (home / "agents").mkdir(parents=True)
    (home / "agents" / "asker.md").write_text(
        f"---\nname: asker\ndescription: d\nbuzz:\n  permissions: {permissions}\n---\n\nYou ask.\n", encoding="utf-8"
    )


@claude
@pytest.mark.req("CLI-01", "TRN-04")
def test_a_line_that_is_typed_while_a_turn_runs_is_steered_and_ctrl_c_stops_it(
    environment: dict[str, str], work: Path, buzz: Buzz
) -> None:
    with chatting(environment, work, "--rehearse") as chat:
        chat.type(SLOW)
        chat.until("message to main on claude")  # behind what the terminal echoes
        chat.until("I am on it")
        chat.type("rehearse: say And that as well.\n")
        chat.until("that was steered: ")
        chat.until("And that as well.")
        chat.until("> ")
        chat.type(SLOW)
        chat.until("message to main on claude")  # behind what the terminal echoes
        chat.until("I am on it")
        chat.type("\x03")
        chat.until("interrupting: waiting for the program")
        chat.until("the turn was interrupted")
        chat.until("> ")
        chat.type("/quit\n")
        chat.until("go on:  buzz chat --resume ")
        assert chat.end() == 0
    rows = buzz("audit", "turns", "--json").rows
    assert len({row["session"] for row in rows}) == 1, "one session"
    assert [(row["kind"], row["status"]) for row in rows if row["kind"] == "message"] == [
        ("message", "interrupted"),
        ("message", "completed"),
    ]
    (steer,) = [row for row in rows if row["kind"] == "steer"]
    assert steer["status"] in {"folded", "completed"}, steer


@claude
@pytest.mark.req("CLI-01", "PRM-01", "SEC-04")
@pytest.mark.parametrize(("answer", "done"), [("y", True), ("n", False), ("", False)])
def test_a_permission_is_asked_inline_and_only_a_yes_allows(
    answer: str, done: bool, environment: dict[str, str], home: Path, work: Path
) -> None:
    agent_that("ask", home)
    made = work / "made"
    with chatting(environment, work, "--rehearse", "--agent", "asker") as chat:
        chat.type(f'rehearse: call Bash {{"command": "touch {made}", "description": "\\u009b31m"}}\n')
        chat.until("asks to use Bash (the program's own, changes things): ")
        shown = chat.until("allow? [y/N] ")
        assert "\\u009b31m" in shown
        assert "\x9b" not in shown
        chat.type(f"{answer}\n")
        chat.until("allowed: a person allowed it" if done else "denied: a person denied it")
        chat.until("> ")
        chat.type("\x04")
        assert chat.end() == 0
    assert made.exists() == done


@pytest.mark.req("PRM-01", "TRN-04", "HAR-04")
def test_a_line_that_is_no_answer_is_steered_and_it_is_asked_again(
    environment: dict[str, str], home: Path, work: Path
) -> None:
    agent_that("ask", home)
    (home / "plugins").mkdir()
    (home / "plugins" / "notes.py").write_text(NOTES, encoding="utf-8")
    with chatting(environment, work, "--rehearse", "--harness", "direct", "--agent", "asker") as chat:
        chat.type(CALL.replace("\n", "\\\n") + "\n")
        chat.until('asks to use mcp__notes__remember (plugin notes, may change things): {"fact":"tea"}')
        chat.until("allow? [y/N] ")
        chat.type("rehearse: say I was steered.\n")
        chat.until("steer to asker on direct")
        chat.until("asks to use mcp__notes__remember")
        chat.until("allow? [y/N] ")
        chat.type("yes\n")
        chat.until("allowed: a person allowed it")
        chat.until("that was steered: ")
        chat.until("I was steered.")
        chat.until("> ")
        chat.type("\x04")
        assert chat.end() == 0
    assert (home / "data" / "notes" / "kept").read_text(encoding="utf-8") == "tea"


@claude
@pytest.mark.req("PRM-01", "SEC-04")
def test_a_question_of_the_program_is_answered_by_a_line(environment: dict[str, str], home: Path, work: Path) -> None:
    agent_that("ask", home)
    question = {
        "question": "Which colour?\x1b[31m",
        "header": "Colour",
        "multiSelect": False,
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    }
    message = f"rehearse: call AskUserQuestion {json.dumps({'questions': [question]})}"
    with typing("run", "--rehearse", "--agent", "asker", message, environment=environment, work=work) as run:
        run.until("? Which colour?\\x1b[31m")
        run.until("  - Red")
        run.until("  - Blue")
        run.until("answer (empty: none): ")
        run.type("Blue\n")
        run.until("allowed: a person allowed it")
        run.until("Blue")
        assert run.end() == 0


@claude
@pytest.mark.req("PRM-01")
def test_run_asks_on_a_terminal_and_denies_at_once_without_one(
    environment: dict[str, str], home: Path, work: Path, buzz: Buzz
) -> None:
    agent_that("ask", home)
    made = work / "made"
    message = f'rehearse: call Bash {{"command": "touch {made}"}}'
    done = buzz("run", "--rehearse", "--agent", "asker", message)
    assert done.code == 0
    assert f'asks to use Bash (the program\'s own, changes things): {{"command":"touch {made}"}}' in done.err
    assert "denied: nobody is there to answer" in done.err
    assert not made.exists()
    rows = buzz("run", "--rehearse", "--agent", "asker", "--json", message).rows
    (asked,) = [row for row in rows if row["event"] == "permission_requested"]
    (settled,) = [row for row in rows if row["event"] == "permission_settled"]
    assert (asked["tool"], asked["plugin"], asked["request"]) == ("Bash", None, settled["request"])
    assert (settled["decision"], settled["by"]) == ("deny", "nobody")
    with typing("run", "--rehearse", "--agent", "asker", message, environment=environment, work=work) as run:
        run.until("allow? [y/N] ")
        run.type("y\n")
        run.until("allowed: a person allowed it")
        assert run.end() == 0
    assert made.exists()


@pytest.mark.req("CLI-01")
def test_in_a_pipe_each_line_is_a_turn_in_order(buzz: Buzz) -> None:
    done = buzz("chat", *PARROT_OPTIONS, stdin=b'say "One"\n\nsay "Two"\\\nsay " and more"\nthree')
    assert (done.code, done.out) == (0, "One\nTwo and more\nthree\n")
    rows = buzz("audit", "turns", "--json").rows
    assert len(rows) == 3
    (session,) = {row["session"] for row in rows}
    assert f"session {session}  go on:  buzz chat --resume {session[:8]}" in done.err
    again = buzz("chat", *PARROT_OPTIONS, "--resume", session[:8], "--json", stdin=b'say "Four"\n')
    assert {row["session"] for row in again.rows} == {session}
    assert [row["reply"] for row in again.rows if row["event"] == "turn_completed"] == ["Four"]
    assert (buzz("chat", *PARROT_OPTIONS).code, buzz("chat", *PARROT_OPTIONS).err) == (0, "")


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize(("lines", "code"), [("fail", 1), ("die\nHello", 1), ("/quit\nfail", 0)])
def test_in_a_pipe_a_turn_that_failed_is_exit_code_1(lines: str, code: int, buzz: Buzz) -> None:
    assert buzz("chat", *PARROT_OPTIONS, stdin=lines.encode()).code == code


@pytest.mark.req("CLI-01", "OPS-01")
def test_a_second_ctrl_c_leaves(environment: dict[str, str], work: Path, buzz: Buzz) -> None:
    with chatting(environment, work, *PARROT_OPTIONS) as chat:
        chat.type("hang deaf\n")
        chat.until("message to main on parrot")
        chat.type("\x03")
        chat.until("Ctrl-C again ends it now")
        chat.type("\x03")
        assert chat.end() == 130
    with chatting(environment, work, *PARROT_OPTIONS) as chat:
        chat.type("\x03")
        assert chat.end() == 0, "at the prompt it leaves"
    assert [row["status"] for row in buzz("audit", "turns", "--json").rows] == ["interrupted"]


@pytest.mark.req("CLI-01", "OPS-03")
def test_it_is_the_same_through_a_running_host(environment: dict[str, str], work: Path, buzz: Buzz, home: Path) -> None:
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "parrot.py").write_bytes(Path(PARROT_OPTIONS[1]).read_bytes())
    lines = b'say "One"\nfail\nsay "Two"\n'
    alone = buzz("chat", "--harness", "parrot", stdin=lines)
    with serving(environment, work) as host:
        served = buzz("chat", "--harness", "parrot", stdin=lines)
        assert (served.code, served.out) == (alone.code, alone.out) == (1, "One\nTwo\n")
        assert _varying(served.err) == _varying(alone.err)
        with chatting(environment, work, "--harness", "parrot") as chat:
            chat.type("hang\n")
            chat.until("message to main on parrot")
            chat.type("\x03")
            chat.until("the turn was interrupted")
            chat.until("> ")
            chat.type("hang\n")
            chat.until("message to main on parrot")
            host.process.send_signal(signal.SIGKILL)
            chat.until("ended before it answered")
            assert chat.end() == 1


@pytest.mark.req("CLI-01")
def test_what_is_no_text_is_one_line(buzz: Buzz) -> None:
    done = buzz("chat", *PARROT_OPTIONS, stdin=b"Hello\n\xff\n")
    assert (done.code, done.out) == (2, "Hello\n")
    assert "buzz: line 2 of standard input is not UTF-8 (byte 0 is 0xff)" in done.err


@pytest.mark.req("CLI-01")
def test_lines_of_a_file_are_turns_too(environment: dict[str, str], work: Path) -> None:
    (work / "lines").write_text("one\ntwo\n", encoding="utf-8")
    with (work / "lines").open("rb") as lines:
        done = subprocess.run(
            [*BUZZ, "chat", *PARROT_OPTIONS], stdin=lines, capture_output=True, cwd=work, env=environment, timeout=60
        )
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")


def _varying(text: str) -> str:
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{8}\b", "…", text)
