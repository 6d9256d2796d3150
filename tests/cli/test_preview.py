"""`buzz preview`: the text alone on stdout, to the byte; why it is so on stderr; nothing started, nothing kept."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import BUZZ, DEADLINE_S, EXAMPLES, PARROT, PARROT_OPTIONS, Buzz
from tests.cli.terminals import on_a_terminal

HOSTILE_PLUGIN = PARROT.with_name("hostile.py")
EXAMPLE_OPTIONS = tuple(
    option
    for name in ("style-guide", "release-freeze", "faulty-guard")
    for option in ("--plugin", str(EXAMPLES / name))
)


@pytest.mark.req("CLI-01")
def test_the_text_alone_is_on_stdout(buzz: Buzz, home: Path) -> None:
    done = buzz("preview", *PARROT_OPTIONS, *EXAMPLE_OPTIONS, "--agent", "dev", "Hello\nthere  ")
    (row,) = buzz("preview", *PARROT_OPTIONS, *EXAMPLE_OPTIONS, "--agent", "dev", "--json", "Hello\nthere  ").rows
    assert done.code == 0
    assert done.out == row["text"] + "\n"
    assert row["text"].startswith("<context>\nAgent: dev\nHarness: parrot\n")
    assert "Hello\nthere\n</buzz-event>" in row["text"]
    assert not home.exists(), "a preview leaves nothing"


@pytest.mark.req("CLI-01", "INS-11")
def test_why_is_on_stderr(buzz: Buzz) -> None:
    done = buzz("preview", *PARROT_OPTIONS, *EXAMPLE_OPTIONS, "--agent", "dev", "Hello")
    first, *rest = done.err.split("\n")[:-1]
    size = len(done.out.encode()) - 1
    assert first == f"message to dev on parrot: {size} bytes, of which release-freeze 177, style-guide 209"
    assert rest == ["left out faulty-guard/on-call: its `when` raised: KeyError: 'dev' (plugin.py:14)"]


@pytest.mark.req("CLI-01")
def test_a_preview_as_json_is_one_event(buzz: Buzz) -> None:
    (row,) = buzz("preview", *PARROT_OPTIONS, *EXAMPLE_OPTIONS, "--json", "Hello").rows
    assert list(row) == [
        "v", "event", "at", "session", "turn", "agent", "harness", "kind", "text", "sections", "left_out", "faults",
    ]  # fmt: skip
    assert (row["v"], row["event"], row["session"], row["turn"], row["kind"]) == (1, "preview", None, None, "message")
    assert [each["plugin"] for each in row["sections"]] == [None, None, "faulty-guard", "style-guide"]
    assert [(each["plugin"], each["reason"]) for each in row["left_out"]] == [("release-freeze", "when-false")]


@pytest.mark.req("CLI-01", "TRN-04")
def test_a_steered_message_can_be_previewed(buzz: Buzz) -> None:
    (row,) = buzz("preview", *PARROT_OPTIONS, "--trigger", "steer", "--json", "Hello").rows
    assert (row["kind"], row["sections"][0]["tag"]) == ("steer", "new-message-arrived-while-you-were-working")


@pytest.mark.req("CLI-01")
def test_the_message_can_come_from_standard_input(buzz: Buzz) -> None:
    given = buzz("preview", *PARROT_OPTIONS, "Grüße\n漢字")
    assert buzz("preview", *PARROT_OPTIONS, "-", stdin="Grüße\n漢字\n".encode()) == given
    assert buzz("preview", *PARROT_OPTIONS, "-", stdin="\ufeffGrüße\n漢字".encode()) == given


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["-"], b"abc\xff\n", "standard input is not UTF-8 (byte 3 is 0xff): convert it first"),
        (["--agent", "main2", "x"], b"", "no agent is called 'main2'; did you mean 'main'?"),
        (["--harness", "claud", "x"], b"", "no harness is called 'claud'"),
        (["--plugin", "nowhere.py", "x"], b"", "nowhere.py: there is no such file or folder"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], stdin: bytes, words: str, buzz: Buzz) -> None:
    done = buzz("preview", *arguments, stdin=stdin)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert words in done.err


@pytest.mark.req("OPS-01")
def test_an_argument_that_is_no_text_is_one_line(environment: dict[str, str], work: Path) -> None:
    command = [*map(os.fsencode, (*BUZZ, "preview", *PARROT_OPTIONS)), b"a\xffb"]
    done = subprocess.run(command, capture_output=True, cwd=work, env=environment, timeout=DEADLINE_S)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"buzz: TEXT is not UTF-8 (character 1): save it in a UTF-8 file, give -\n"


@pytest.mark.req("SEC-04")
def test_a_file_gets_the_text_and_a_terminal_gets_it_harmless(
    buzz: Buzz, environment: dict[str, str], work: Path
) -> None:
    options = ("preview", *PARROT_OPTIONS, "--plugin", str(HOSTILE_PLUGIN), "Hello \x1b[2J")
    to_a_file = buzz(*options)
    assert "Told \x1b[31mred\x9b2J \u202eback\x07." in to_a_file.out
    assert not set(to_a_file.err) & set("\x1b\x9b\u202e\x07")

    code, text = on_a_terminal(*options, environment=environment, work=work)
    assert code == 0
    assert "Told \\x1b[31mred\\x9b2J \\u202eback\\x07." in text
    assert "Hello \\x1b[2J" in text
    assert "left out hostile/left-out: its `when` raised: ValueError: \\x1b[31mred" in text
    # The colours are ours; of what the texts hold nothing is obeyed.
    assert "\x1b[31mred" not in text
    assert not set(text) & set("\x9b\u202e\x07")


@pytest.mark.req("PLG-04", "PLG-02")
def test_a_plugin_with_a_fault_costs_only_itself(buzz: Buzz, tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def apply(ctx):\n    raise RuntimeError('out\\nof luck')\n", encoding="utf-8")
    done = buzz("preview", *PARROT_OPTIONS, "--plugin", broken, "Hello")
    assert done.code == 0
    assert "left out broken: the plugin failed: RuntimeError: out of luck" in done.err
    assert "fault" not in done.err, "told once"
    (row,) = buzz("preview", *PARROT_OPTIONS, "--plugin", broken, "--json", "Hello").rows
    assert [(each["plugin"], each["phase"]) for each in row["faults"]] == [("broken", "apply")]
    assert [(each["plugin"], each["id"], each["reason"]) for each in row["left_out"]] == [
        ("broken", "*", "plugin-failed")
    ]
