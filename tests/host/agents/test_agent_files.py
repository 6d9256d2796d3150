"""One agent file: what it may say, what the defaults are, and the one line that each fault in it gives."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from buzz_author.harness import Policy
from buzz_host.agents.files import AGENT_FILE_MAX_BYTES, parse_agent_file
from buzz_host.agents.frontmatter import FRONTMATTER_MAX_CHARS, FRONTMATTER_MAX_DEPTH
from buzz_host.agents.spec import AgentFileError, AgentSpec, FileNote, Permissions

QUICK_S = 5.0

FULL = """\
---
name: observer
description: Watches the beam, and says so.
model: opus
effort: high
tools: [engine_tools, device_tools]
skills:
  - alignment
memory: false
buzz:
  subagent: false
  openable: false
  on_message: auto
  forward_min_severity: critical
  harness: claude
  cwd: /tmp/observer
  permissions: read-only
  allowed_plugins: [style-guide, release_freeze]
  while_busy: queue
  attention: true
---

# Observer
You watch.
"""


def written(folder: Path, text: str | bytes, name: str = "agent.md") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def parsed(folder: Path, text: str | bytes) -> AgentSpec:
    return parse_agent_file(written(folder, text), "user")


def fault(folder: Path, text: str | bytes) -> str:
    """The message of the error that `text` gives, its path taken off."""
    path = written(folder, text)
    with pytest.raises(AgentFileError) as caught:
        parse_agent_file(path, "user")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{path}:{caught.value.line}: ")
    assert caught.value.path == path
    return message.removeprefix(f"{path}:")


@pytest.mark.req("SPC-01")
def test_every_key_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, FULL, "observer.md")
    assert parse_agent_file(path, "user") == AgentSpec(
        name="observer",
        description="Watches the beam, and says so.",
        prompt="# Observer\nYou watch.",
        scope="user",
        source_path=path,
        model="opus",
        effort="high",
        tools=("engine_tools", "device_tools"),
        skills=("alignment",),
        memory=False,
        subagent=False,
        openable=False,
        on_message="auto",
        forward_min_severity="critical",
        harness="claude",
        cwd=Path("/tmp/observer"),
        permissions="read-only",
        allowed_plugins=("style-guide", "release_freeze"),
        while_busy="queue",
        attention=True,
    )
    assert parse_agent_file(path, "user").warnings == ()


@pytest.mark.req("SPC-01")
def test_defaults(tmp_path: Path) -> None:
    spec = parsed(tmp_path, "---\nname: a\ndescription: b\n---\nc\n")
    assert (spec.memory, spec.subagent, spec.openable) == (True, True, True)
    assert (spec.on_message, spec.forward_min_severity) == ("queue", "warn")
    assert (spec.model, spec.effort, spec.harness, spec.cwd) == (None, None, None, None)
    assert (spec.tools, spec.skills, spec.allowed_plugins) == ((), (), None)
    assert (spec.permissions, spec.while_busy, spec.attention) == (None, "steer", False)


@pytest.mark.req("SPC-01")
def test_a_key_left_blank_has_its_default(tmp_path: Path) -> None:
    spec = parsed(
        tmp_path, "---\nname: a\ndescription: b\nmodel:\neffort: ~\ntools: null\nbuzz:\n  on_message:\n---\nc"
    )
    assert (spec.model, spec.effort, spec.tools, spec.on_message) == (None, None, (), "queue")
    assert parsed(tmp_path, "---\nname: a\ndescription: b\nbuzz:\n---\nc").openable is True


@pytest.mark.req("SPC-01")
def test_the_block_of_the_elder_system_is_read(tmp_path: Path) -> None:
    assert parsed(tmp_path, FULL.replace("buzz:", "lightfall:")).on_message == "auto"
    both = FULL.replace("---\n\n", "lightfall:\n  openable: true\n---\n\n")
    assert fault(tmp_path, both) == "21: both 'buzz' (line 10) and 'lightfall', expected one of them"


@pytest.mark.req("SPC-01")
def test_the_permissions_are_the_policies_of_a_session() -> None:
    assert get_args(Permissions) == get_args(Policy)


@pytest.mark.req("SPC-01")
@pytest.mark.parametrize("word", ["no", "yes", "on", "null", "true", "1.0", "0x10", "1_000", "2024-01-01", "12e3"])
def test_what_is_read_is_text(tmp_path: Path, word: str) -> None:
    spec = parsed(tmp_path, f"---\nname: a\ndescription: 'd'\nmodel: '{word}'\ntools: [{word}]\n---\nx")
    assert (spec.model, spec.tools) == (word, (word,))
    assert parsed(tmp_path, f"---\nname: a\ndescription: {word} x\n---\nx").description == f"{word} x"


@pytest.mark.req("SPC-01")
def test_a_name_that_yaml_takes_for_a_truth_value_is_a_name(tmp_path: Path) -> None:
    assert parsed(tmp_path, "---\nname: no\ndescription: off\n---\nx").name == "no"
    assert parsed(tmp_path, "---\nname: 007\ndescription: off\n---\nx").name == "007"


@pytest.mark.req("SPC-01")
@pytest.mark.parametrize(
    ("word", "meant"), [("true", True), ("Yes", True), ("on", True), ("NO", False), ("'false'", False)]
)
def test_truth_values(tmp_path: Path, word: str, meant: bool) -> None:
    assert parsed(tmp_path, f"---\nname: a\ndescription: b\nmemory: {word}\n---\nx").memory is meant


@pytest.mark.req("SPC-01")
@pytest.mark.parametrize(
    "content",
    [
        "\ufeff---\nname: a\ndescription: b\n---\nfirst\nsecond\n",
        "---\r\nname: a\r\ndescription: b\r\n---\r\nfirst\r\nsecond\r\n",
        "---\rname: a\rdescription: b\r---\rfirst\rsecond\r",
        "--- \nname: a\ndescription: b\n---\t\nfirst\nsecond",
        "---\nname: a\ndescription: b\n---\n\n\nfirst\nsecond\n\n",
        "---\nname: a\ndescription: |\n  b\n---\nfirst\nsecond",
    ],
)
def test_ways_of_writing_the_same(tmp_path: Path, content: str) -> None:
    spec = parsed(tmp_path, content)
    assert (spec.name, spec.description, spec.prompt) == ("a", "b", "first\nsecond")


@pytest.mark.req("SPC-01")
def test_a_folder_in_the_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parsed(tmp_path, "---\nname: a\ndescription: b\nbuzz: {cwd: ~/x}\n---\nx").cwd == tmp_path / "x"


MINIMAL = "---\nname: a\ndescription: b\n{}\n---\nx"


@pytest.mark.req("SPC-02")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "1: no frontmatter, expected a first line of '---'"),
        ("hello\n---\n", "1: no frontmatter, expected a first line of '---'"),
        ("---\nname: a\n", "1: the frontmatter does not end, expected a second line of '---'"),
        ("---\n---\nx", "1: no 'name', expected 'name: …' in the frontmatter"),
        ("---\ndescription: b\n---\nx", "1: no 'name', expected 'name: …' in the frontmatter"),
        ("---\nname: a\n---\nx", "1: no 'description', expected 'description: …' in the frontmatter"),
        ("---\nname: a\ndescription:\n---\nx", "3: no 'description', expected 'description: …' in the frontmatter"),
        ("---\nname: a\ndescription: ' '\n---\nx", "3: 'description' is empty, expected text"),
        ("---\nname: a\ndescription: b\n---\n \n\n", "5: no prompt, expected text below the frontmatter"),
        ("---\nname: a\ndescription: b\n---", "5: no prompt, expected text below the frontmatter"),
        ("---\n- a\n---\nx", "2: a list, expected 'key: value' lines"),
        ("---\nname\n---\nx", "2: 'name', expected 'key: value' lines"),
        ("---\nname: a\nname: b\n---\nx", "3: the key 'name' stands twice (first on line 2), expected it once"),
        (
            "---\nname: a\nbuzz:\n  cwd: /a\n  openable: no\n  cwd: /b\n---\nx",
            "6: the key 'cwd' stands twice (first on line 4), expected it once",
        ),
        (
            "---\nname: a\ndescription: Use: it\n---\nx",
            "3: a ': ' inside a value, expected the value in quotes (key: \"one: two\")",
        ),
        ("---\nname: a\nbuzz:\n\topenable: no\n---\nx", "4: a tab, expected spaces for indenting"),
        ("---\nname: \x07\n---\nx", "2: U+0007 may not stand in YAML, expected printable text"),
        (b"---\nname: a\ndescription: caf\xe9\n---\nx", "3: the byte 0xe9, expected text in UTF-8"),
        ("---\nname: &a x\ntools: [*a]\n---\nx", "2: '&a' (an anchor or alias), expected the value written out"),
        ("---\nname: *a\n---\nx", "2: '*a' (an anchor or alias), expected the value written out"),
        ("---\nname: !!python/name:os.system x\n---\nx", "2: a YAML tag, expected a plain value"),
        ("---\nname: !\n---\nx", "2: a YAML tag, expected a plain value"),
        ("---\n%YAML 1.1\n--- \nname: no\n---\nx", None),
        ("---\n? [a]\n: b\n---\nx", "2: a list as a key, expected a word"),
        ("---\nname: a\n...\nname: b\n---\nx", None),
        (MINIMAL.format("model: [a]"), "4: 'model' is a list, expected text"),
        (MINIMAL.format('model: "a\\nb"'), "4: 'model' is 'a\\nb', expected one line of printable text"),
        (MINIMAL.format("tools: a, b"), "4: 'tools' is 'a, b', expected a list of names, such as [one, two]"),
        (MINIMAL.format("tools: [a, [b]]"), "4: 'tools' is a list, expected text"),
        (MINIMAL.format("tools: [a, ]\nskills:\n  -\n"), "6: 'skills' is empty, expected text"),
        (MINIMAL.format("memory: 1"), "4: 'memory' is '1', expected true or false"),
        (MINIMAL.format("buzz: 7"), "4: 'buzz' is '7', expected a mapping"),
        (MINIMAL.format("lightfall: []"), "4: 'lightfall' is a list, expected a mapping"),
        (MINIMAL.format("buzz:\n  on_message: later"), "5: 'buzz.on_message' is 'later', expected queue or auto"),
        (
            MINIMAL.format("buzz:\n  forward_min_severity: error"),
            "5: 'buzz.forward_min_severity' is 'error', expected info or warn or critical",
        ),
        (
            MINIMAL.format("buzz:\n  permissions: everything"),
            "5: 'buzz.permissions' is 'everything', expected ask or plugin-tools-only or read-only or all",
        ),
        (MINIMAL.format("buzz: {while_busy: [steer]}"), "4: 'buzz.while_busy' is a list, expected steer or queue"),
        (
            MINIMAL.format("buzz:\n  cwd: work"),
            "5: 'buzz.cwd' is 'work', expected an absolute path or one that begins with ~/",
        ),
        (MINIMAL.format('buzz:\n  cwd: "/a\\0b"'), "5: 'buzz.cwd' is '/a\\x00b', expected one line of printable text"),
    ],
)  # fmt: skip
def test_each_fault_is_one_line_with_path_line_and_what_was_expected(
    tmp_path: Path, content: str | bytes, message: str | None
) -> None:
    found = fault(tmp_path, content)
    assert ", expected " in found
    assert message is None or found == message


@pytest.mark.req("PLG-08", "SPC-02")
@pytest.mark.parametrize(
    "name", ["bus", "skills", "panel", "attention", "host", "Main", "-a", "a b", "a/b", "../a", "é", "a" * 65]
)
def test_a_name_that_is_not_allowed(tmp_path: Path, name: str) -> None:
    assert fault(tmp_path, f"---\nname: '{name}'\ndescription: b\n---\nx").startswith("2: agent name ")
    assert fault(tmp_path, MINIMAL.format(f"buzz:\n  allowed_plugins: ['{name}']")).startswith("5: plugin name ")


@pytest.mark.req("SPC-02")
def test_unknown_keys_warn_with_a_suggestion(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "---\nname: a\nmodle: x\ndescription: b\nopenable: no\nzzz: 1\n"
        "buzz:\n  on_mesage: auto\n  memory: no\n  tols: [a]\n---\nx",
        "a.md",
    )
    spec = parse_agent_file(path, "user")
    assert [(note.line, note.message) for note in spec.warnings] == [
        (3, "unknown key 'modle' is ignored; did you mean 'model'?"),
        (5, "unknown key 'openable' is ignored; it belongs inside 'buzz:'"),
        (6, "unknown key 'zzz' is ignored"),
        (8, "unknown key 'buzz.on_mesage' is ignored; did you mean 'on_message'?"),
        (9, "unknown key 'buzz.memory' is ignored; it belongs at the top of the frontmatter"),
        (10, "unknown key 'buzz.tols' is ignored; did you mean 'tools'?"),
    ]
    assert str(spec.warnings[0]) == f"{path}:3: unknown key 'modle' is ignored; did you mean 'model'?"
    assert spec.openable is True


@pytest.mark.req("SPC-02")
def test_a_file_that_is_not_called_as_its_agent_warns(tmp_path: Path) -> None:
    text = "---\ndescription: b\nname: rel\n---\nx"
    (note,) = parse_agent_file(written(tmp_path, text, "release.md"), "user").warnings
    assert (note.line, note.message) == (
        3,
        "the agent is called 'rel' after this key, not 'release' after its file: rename one",
    )
    assert parse_agent_file(written(tmp_path, text, "rel.md"), "user").warnings == ()


@pytest.mark.req("SPC-02")
def test_lines_are_counted_as_an_editor_counts_them(tmp_path: Path) -> None:
    assert (
        fault(tmp_path, "---\ndescription: 'a\u2028b\x85c'\nname: [a]\n---\nx") == "3: 'name' is a list, expected text"
    )


@pytest.mark.req("SPC-02")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("---\n" + "a: *x\n" * 1_000_000 + "---\nx", f"1: too large, expected at most {AGENT_FILE_MAX_BYTES} bytes"),
        ("---\nname: &a a\ntools: [" + "*a," * 1_000_00 + "]\n---\nx", f"expected at most {FRONTMATTER_MAX_CHARS}"),
        (
            "---\nname: &a a\ntools: [" + "*a," * 10_000 + "]\n---\nx",
            "2: '&a' (an anchor or alias), expected the value",
        ),
        ("---\na: " + "[" * 60_000 + "\n---\nx", f"expected at most {FRONTMATTER_MAX_DEPTH} levels"),
        ("---\na: " + "{a: " * 15_000 + "\n---\nx", f"expected at most {FRONTMATTER_MAX_DEPTH} levels"),
        ("---\n" + "? " * 30_000 + "\n---\nx", f"expected at most {FRONTMATTER_MAX_DEPTH} levels"),
        ("---\nname: a\n" + "x" * 60_000 + "\n---\nx", ", expected "),
        ("---\nname: a\ndescription: '" + "\\" * 60_000 + "\n---\nx", ", expected "),
        ("---\nname: a\n" + "\n" * 60_000 + "-\n---\nx", ", expected "),
    ],
    ids=["million", "many", "bomb", "lists", "mappings", "keys", "long", "quote", "blank"],
)
def test_a_bomb_is_one_clear_error_and_quick(tmp_path: Path, content: str, message: str) -> None:
    started = time.perf_counter()
    assert message in fault(tmp_path, content)
    assert time.perf_counter() - started < QUICK_S


@pytest.mark.req("SPC-02")
def test_what_is_no_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "endless.md").symlink_to("/dev/zero")
    for name in ("pipe", "folder", "endless", "absent"):
        with pytest.raises(
            AgentFileError, match=f"{name}.md:1: not there or no regular file, expected a Markdown file"
        ):
            parse_agent_file(tmp_path / f"{name}.md", "user")


@pytest.mark.req("SPC-02")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = written(tmp_path, FULL, "observer.md")
    path.chmod(0)
    with pytest.raises(AgentFileError, match="Permission denied"):
        parse_agent_file(path, "user")


@pytest.mark.req("SPC-02")
def test_a_file_name_cannot_break_the_line() -> None:
    note = FileNote(Path("/a\n/b\x1b[2J\udcff.md"), 3, "bad")
    assert str(note) == r"/a\n/b\x1b[2J\udcff.md:3: bad"
    assert str(AgentFileError(note.path, 3, "bad")) == str(note)


@pytest.mark.req("SPC-02")
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(alphabet="---\n: [](){}\"'&*!|>%@`#,?\t\r namedcriptozu\x85\u2028\ufeff", max_size=200).map(str.encode),
        st.text(alphabet=": [](){}\"'&*!|>%@`#,?-\t\n ab\\x1", max_size=120).map(
            lambda text: f"---\nname: a\ndescription: b\n{text}\n---\nx".encode()
        ),
    )
)
@example(b'---\nname: a\ndescription: "\\ud800"\n---\nx')
def test_any_content_is_a_spec_or_one_line(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = written(tmp_path_factory.getbasetemp(), content, "any.md")
    spec, error = _outcome(path)
    if spec is None:
        assert error is not None
        assert "\n" not in str(error)
        assert ", expected " in str(error)
        assert 1 <= error.line <= content.count(b"\n") + content.count(b"\r") + 1
    else:
        spec.description.encode("utf-8")
        spec.prompt.encode("utf-8")


def _outcome(path: Path) -> tuple[AgentSpec | None, AgentFileError | None]:
    try:
        return parse_agent_file(path, "user"), None
    except AgentFileError as error:
        return None, error
