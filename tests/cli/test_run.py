"""`buzz run` with a harness that does what it is told: streams, events, failures, interruption, resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import BUZZ, DEADLINE_S, PARROT_OPTIONS, Buzz

# The fields of each event beside the common ones (INTERFACES, "Events as JSON").
COMMON = ["v", "event", "at", "session", "turn"]
FIELDS = {
    "turn_started": ["agent", "harness", "kind", "text", "sections", "left_out", "faults"],
    "text_delta": ["text"],
    "tool_call": ["call", "name", "plugin", "arguments"],
    "tool_result": ["call", "is_error", "bytes"],
    "retrying": ["attempt", "error"],
    "compacted": [],
    "turn_completed": ["status", "reply", "usage", "error"],
    "session_ended": ["error"],
}
EVERYTHING = 'say "Hello"\ntool\nretry\ncompact\nsay " you"'


@pytest.mark.req("CLI-01")
def test_the_reply_is_on_stdout_and_all_else_beside_it(buzz: Buzz) -> None:
    done = buzz("run", *PARROT_OPTIONS, EVERYTHING)
    assert (done.code, done.out) == (0, "Hello\n you\n")
    lines = done.err.split("\n")[:-1]
    assert lines[0].startswith("message to main on parrot: ")
    assert lines[1:5] == [
        "tool look\\x1b[2J of parrot",
        "tool returned: 15 bytes",
        "asking the model again (attempt 1): overloaded (status 529): too \\x1b[31mmany\\nparrots",
        "the program replaced its history by a summary",
    ]
    turn, session = lines[5].split()[1], lines[6].split()[1]
    assert lines[5] == f"turn    {turn}  see it: buzz audit show {turn[:8]}"
    assert lines[6] == f"session {session}  go on:  buzz run --resume {session[:8]}"
    assert buzz("audit", "show", turn[:8], "--json").rows[0]["reply"] == "Hello you"
    assert all(len(line) <= 80 for line in lines[5:])


@pytest.mark.req("CLI-01", "OPS-01")
def test_the_reply_streams(environment: dict[str, str], work: Path) -> None:
    with running(environment, work, "run", *PARROT_OPTIONS, 'say "first"\nhang') as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 100)[:1] == b"f"
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130


@pytest.mark.req("CLI-01")
def test_each_event_is_one_line_with_the_fields_of_its_kind(buzz: Buzz) -> None:
    done = buzz("run", *PARROT_OPTIONS, "--json", EVERYTHING)
    assert (done.code, done.err) == (0, "")
    assert not set(done.out) & set("\x1b\x9b\u2028")
    kinds = [row["event"] for row in done.rows]
    assert kinds[0] == "turn_started"
    assert set(kinds) == {
        "turn_started",
        "text_delta",
        "tool_call",
        "tool_result",
        "retrying",
        "compacted",
        "turn_completed",
    }
    assert kinds[-1] == "turn_completed"
    for row in done.rows:
        assert list(row) == [*COMMON, *FIELDS[row["event"]]]
        assert row["v"] == 1
    assert len({(row["session"], row["turn"]) for row in done.rows}) == 1
    assert "".join(row["text"] for row in done.rows if row["event"] == "text_delta") == done.rows[-1]["reply"]
    (call,) = (row for row in done.rows if row["event"] == "tool_call")
    assert call["arguments"] == {"where": "\u2028\ufffd\x9b"}
    assert done.rows[-1]["usage"]["input_tokens"] == 12


@pytest.mark.req("CLI-01", "AUD-01")
def test_the_ledger_gives_the_same_object_again(buzz: Buzz) -> None:
    first, *_, last = buzz("run", *PARROT_OPTIONS, "--json", EVERYTHING).rows
    (kept,) = buzz("audit", "show", first["turn"][:8], "--json").rows
    for key in FIELDS["turn_started"]:
        assert kept[key] == first[key], key
    for key in FIELDS["turn_completed"]:
        assert kept[key] == last[key], key


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("fail", "the turn failed: overloaded (status 529): too \\x1b[31mmany\\nparrots; trying again later may help"),
        ("die", "the turn failed: process-died: the parrot is no more"),
    ],
)
def test_a_turn_that_failed_is_one_line_and_exit_code_1(message: str, line: str, buzz: Buzz) -> None:
    done = buzz("run", *PARROT_OPTIONS, message)
    assert (done.code, done.out) == (1, "")
    assert line in done.err.split("\n")
    as_json = buzz("run", *PARROT_OPTIONS, "--json", message)
    assert (as_json.code, as_json.err) == (1, "")
    (completed,) = (row for row in as_json.rows if row["event"] == "turn_completed")
    assert completed["status"] == "failed"
    assert list(completed["error"]) == ["kind", "status", "native", "retryable"]


@pytest.mark.req("OPS-01", "HAR-02")
def test_a_fault_of_the_harness_itself_is_no_traceback(buzz: Buzz) -> None:
    done = buzz("run", *PARROT_OPTIONS, "crash")
    assert done.code != 0
    assert "Traceback (most recent call last)" not in done.err.split("buzz: ")[-1]


@pytest.mark.req("CLI-01")
def test_a_session_goes_on_by_the_beginning_of_its_id(buzz: Buzz) -> None:
    first = buzz("run", *PARROT_OPTIONS, "--json", "one").rows[0]
    second = buzz("run", *PARROT_OPTIONS[:2], "--resume", first["session"][:8], "--json", "two").rows[0]
    assert second["session"] == first["session"]
    assert second["turn"] != first["turn"]
    turns = buzz("audit", "turns", "--session", first["session"][:8], "--json").rows
    assert [row["turn"] for row in turns] == [second["turn"], first["turn"]]


@pytest.mark.req("CLI-01")
def test_the_message_can_come_from_standard_input(buzz: Buzz) -> None:
    assert buzz("run", *PARROT_OPTIONS, "-", stdin='say "漢字"'.encode()).out == "漢字\n"
    done = buzz("run", *PARROT_OPTIONS, "-", stdin=b"\xc3\x28")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)


@pytest.mark.req("SEC-04")
def test_a_reply_does_not_reach_the_terminal_as_it_is(buzz: Buzz) -> None:
    said = "\x1b[31mred\x9b2J\r\nline \u202eback\x07 end\r"
    done = buzz("run", *PARROT_OPTIONS, f"say {json.dumps(said)}")
    assert done.out == "\\x1b[31mred\\x9b2J\nline \\u202eback\\x07 end\\r\n"


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--resume", "nothing", "x"], "no session is called 'nothing'"),
        (["--rehearse", "--model-url", "http://127.0.0.1:1", *PARROT_OPTIONS, "x"], "either --rehearse or --model-url"),
        (["--record", "file", *PARROT_OPTIONS, "x"], "--record writes what the rehearsal model received"),
        ([*PARROT_OPTIONS, "  "], "the message is empty"),
        (["--agent", "nobody", *PARROT_OPTIONS, "x"], "no agent is called 'nobody'"),
        (["--plugin", "nowhere", "x"], "nowhere: there is no such file or folder"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str, buzz: Buzz) -> None:
    done = buzz("run", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert words in done.err


@pytest.mark.req("CLI-01")
@pytest.mark.claude
def test_without_a_way_to_a_model_it_says_what_is_needed(buzz: Buzz) -> None:
    done = buzz("run", "Hello")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert all(word in done.err for word in ("ANTHROPIC_API_KEY", "--model-url", "--rehearse"))


@pytest.mark.req("CLI-01", "OPS-03")
@pytest.mark.parametrize("as_json", [True, False])
def test_ctrl_c_interrupts_the_turn_and_that_is_recorded(
    as_json: bool, buzz: Buzz, environment: dict[str, str], work: Path
) -> None:
    options = ["--json"] if as_json else []
    with running(environment, work, "run", *PARROT_OPTIONS, *options, 'say "so far"\nhang') as process:
        wait_for_output(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
    if as_json:
        assert json.loads(out.decode().split("\n")[-2])["status"] == "interrupted"
    else:
        assert b"the turn was interrupted" in err
    assert [row["status"] for row in buzz("audit", "turns", "--json").rows] == ["interrupted"]


@pytest.mark.req("CLI-01", "OPS-03")
def test_a_second_ctrl_c_leaves(buzz: Buzz, environment: dict[str, str], work: Path) -> None:
    with running(environment, work, "run", *PARROT_OPTIONS, 'say "so far"\nhang deaf') as process:
        wait_for_output(process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)  # two at once would be one
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
        assert b"Traceback" not in err
    (row,) = buzz("audit", "turns", "--json").rows
    assert row["status"] in ("interrupted", "failed")
    assert buzz("audit", "verify").code == 0


@pytest.mark.req("OPS-01")
def test_a_reader_that_leaves_ends_the_turn_in_silence(buzz: Buzz, environment: dict[str, str], work: Path) -> None:
    text = json.dumps("x" * 300_000)
    with running(environment, work, "run", *PARROT_OPTIONS, "-", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(f"say {text}\nhang".encode())
        process.stdin.close()
        process.stdout.read(10)
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()
        assert process.wait(DEADLINE_S) == 141
    assert [row["status"] for row in buzz("audit", "turns", "--json").rows] == ["interrupted"]


@contextmanager
def running(
    environment: dict[str, str], work: Path, *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs; killed if the test does not end it."""
    process = subprocess.Popen(
        [*BUZZ, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=work, env=environment
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def wait_for_output(process: subprocess.Popen[bytes]) -> None:
    """Until the turn has begun to answer. What is read here is lost."""
    assert process.stdout is not None
    seen = b""
    while b"so far" not in seen and b"text_delta" not in seen:
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, "it ended before it answered"
        seen += piece
