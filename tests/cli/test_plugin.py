"""`buzz plugin`: what the list shows is what the next turn does, and the switches say what holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import EXAMPLES, PARROT, PARROT_OPTIONS, Buzz
from tests.cli.ledgers import HOSTILE


def put(home: Path, name: str, body: str) -> Path:
    """A plugin in one file, dropped into the home."""
    path = home / "plugins" / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'inject = ("agents",)\n\n\ndef apply(ctx):\n    {body}\n', encoding="utf-8")
    return path


SHIPPED = {"claude", "codex", "direct", "goose", "pi"}


def speaks(text: str = "Hello.", when: str = "None") -> str:
    return f"ctx.agents.addInstructions(id='one', text={text!r}, when={when})"


def listed(buzz: Buzz, *options: str) -> dict[str, tuple[bool, str]]:
    """Each plugin of the list that is not shipped: whether it is on, and how it stands."""
    rows = buzz("plugin", "list", "--json", *options).rows
    return {row["plugin"]: (row["enabled"], row["standing"]) for row in rows if row["plugin"] not in SHIPPED}


def speaking(buzz: Buzz, *options: str) -> set[str]:
    """The plugins that speak in the next turn."""
    (row,) = buzz("preview", *PARROT_OPTIONS, "--json", *options, "x").rows
    return {each["plugin"] for each in row["sections"]} - {None}


@pytest.mark.req("PLG-06", "REG-01")
def test_what_the_list_shows_is_what_the_next_turn_does(buzz: Buzz, home: Path) -> None:
    for name in ("one", "two", "three"):
        put(home, name, speaks())
    put(home, "broken", "raise RuntimeError('no luck')")
    put(home, "shy", speaks()).write_text("enabled_by_default = False\n" + (home / "plugins" / "one.py").read_text())
    steps = [
        ([], {"one", "two", "three"}),
        (["disable", "one"], {"two", "three"}),
        (["disable", "two", "--agent", "dev"], {"two", "three"}),
        (["enable", "shy"], {"two", "three", "shy"}),
        (["enable", "one"], {"one", "two", "three", "shy"}),
        (["disable", "three"], {"one", "two", "shy"}),
        (["enable", "three", "--agent", "main"], {"one", "two", "shy"}),
    ]
    for step, expected in steps:
        if step:
            done = buzz("plugin", *step)
            assert done.code == (1 if step == ["enable", "three", "--agent", "main"] else 0), done
        assert speaking(buzz) == expected, step
        assert {name for name, row in listed(buzz).items() if row == (True, "active")} == expected, step
    assert speaking(buzz, "--agent", "dev") == {"one", "shy"}
    assert {name for name, row in listed(buzz, "--agent", "dev").items() if row == (True, "active")} == {"one", "shy"}
    assert listed(buzz)["broken"] == (True, "failed")


@pytest.mark.req("PLG-06")
def test_a_switch_says_for_whom_and_from_when(buzz: Buzz, home: Path) -> None:
    put(home, "one", speaks())
    assert buzz("plugin", "disable", "one").out == "plugin 'one' is off for all agents, from the next turn\n"
    done = buzz("plugin", "enable", "one", "--agent", "dev")
    assert (done.code, done.out) == (
        1, "plugin 'one' stays off for agent 'dev': it is switched off for all; buzz plugin enable one\n",
    )  # fmt: skip
    assert buzz("plugin", "enable", "one").out == "plugin 'one' is on for all agents, from the next turn\n"
    assert buzz("plugin", "disable", "one", "--agent", "dev", "--json").rows == [
        {"plugin": "one", "agent": "dev", "enabled": False, "reason": "off for the agent", "from": "the next turn"}
    ]
    out = buzz("plugin", "list").out
    assert "on, by default; off for dev" in out
    assert "off, switched off for dev; on for" not in buzz("plugin", "list", "--agent", "dev").out


@pytest.mark.req("OPS-01", "PLG-06")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["enable", "style-gide"], "no plugin is called 'style-gide'; did you mean 'style-guide'?"),
        (["disable", "nothing-like-it"], "no plugin is called 'nothing-like-it'; the plugins are: "),
        (["disable", "style-guide", "--agent", "deb"], "no agent is called 'deb'; did you mean 'dev'?"),
        (["list", "--agent", "nobody"], "no agent is called 'nobody'"),
        (["info", "style"], "no plugin is called 'style'; did you mean 'style-guide'?"),
        (["enable", "empty"], "plugin 'empty' cannot be used: "),
        (["remove", "nothing"], "there is no plugin 'nothing' in"),
        (["install", "--link", "nowhere"], "nowhere: there is no such file or folder"),
        (["new", "Not A Name"], "plugin name 'Not A Name' is not allowed"),
        (["validate", "nowhere"], "nowhere: there is no such file or folder"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], words: str, buzz: Buzz, home: Path) -> None:
    buzz("plugin", "install", "--link", EXAMPLES / "style-guide")
    (home / "plugins" / "empty").mkdir()
    done = buzz("plugin", *arguments)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), done
    assert words in done.err


@pytest.mark.req("PLG-06", "PLG-08")
def test_a_dash_is_as_good_as_an_underscore(buzz: Buzz, home: Path) -> None:
    put(home, "one_two", speaks())
    assert buzz("plugin", "disable", "one-two").code == 0
    assert listed(buzz)["one_two"] == (False, "off")


@pytest.mark.req("CLI-01")
def test_info_says_all_of_it(buzz: Buzz) -> None:
    buzz("plugin", "install", "--link", EXAMPLES / "release-freeze")
    (row,) = buzz("plugin", "info", "release-freeze", "--json").rows
    assert (row["plugin"], row["agent"], row["origin"], row["version"]) == ("release-freeze", "main", "linked", "1.0.0")
    assert (row["where"], len(row["content_hash"])) == (str(EXAMPLES / "release-freeze"), 64)
    assert row["settings"] == {"branch": "release"}
    assert row["instructions"] == [{"id": "freeze", "bytes": 177, "guarded": True}]
    out = buzz("plugin", "info", "release-freeze").out
    for words in (
        "path         " + str(EXAMPLES / "release-freeze"),
        "content      sha256 " + row["content_hash"],
        'setting      branch = "release"   The branch that is frozen',
        "instructions freeze: 177 bytes a turn, asks a `when` each turn",
    ):
        assert words in out


@pytest.mark.req("CLI-01")
def test_info_shows_settings_of_the_person_and_what_is_wrong_with_them(buzz: Buzz, home: Path) -> None:
    buzz("plugin", "install", "--link", EXAMPLES / "release-freeze")
    (home / "buzz.toml").write_text('[plugins.release-freeze]\nbranch = 5\nbrunch = "x"\n', encoding="utf-8")
    (row,) = buzz("plugin", "info", "release-freeze", "--json").rows
    assert row["settings"]["branch"] == "release"
    assert len(row["warnings"]) == 2
    assert buzz("plugin", "info", "release-freeze").out.count("\nwarning ") == 2


@pytest.mark.req("CLI-01", "PLG-02")
def test_errors_are_those_of_finding_loading_and_applying(buzz: Buzz, home: Path) -> None:
    assert buzz("plugin", "errors").out == "no plugin has a fault\n"
    put(home, "applies", "raise RuntimeError('no luck')")
    put(home, "loads", "pass").write_text("this is no python", encoding="utf-8")
    (home / "plugins" / "empty").mkdir()
    rows = buzz("plugin", "errors", "--json").rows
    assert [(row["level"], row["plugin"], row["phase"]) for row in rows] == [
        ("error", "empty", "find"), ("error", "applies", "apply"), ("error", "loads", "load"),
    ]  # fmt: skip
    out = buzz("plugin", "errors").out
    assert "applies  apply  RuntimeError: no luck (applies.py:5)\n│ Traceback (most recent call last):\n" in out
    assert "empty  find  " in out


@pytest.mark.req("SEC-04")
def test_what_a_plugin_says_of_itself_does_not_reach_the_terminal_as_it_is(buzz: Buzz, home: Path) -> None:
    written = HOSTILE.encode("unicode_escape").decode("ascii")
    put(home, "hostile", f'raise RuntimeError("{written}")').write_text(
        f'"""Says {written}"""\nversion = "{written}"\nauthor = "{written}"\n\n\ndef apply(ctx):\n'
        f'    raise RuntimeError("{written}")\n',
        encoding="utf-8",
    )
    for arguments in (["list"], ["info", "hostile"], ["errors"]):
        done = buzz("plugin", *arguments)
        assert done.code == 0, done
        assert not set(done.out + done.err) & set("\x1b\x9b\u202e\x07\r"), arguments
        assert "\\x1b[31mred" in done.out, arguments


@pytest.mark.req("CLI-01", "PLG-04")
def test_a_plugin_is_linked_and_taken_out_again(buzz: Buzz, home: Path) -> None:
    done = buzz("plugin", "install", "--link", EXAMPLES / "style-guide")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("plugin 'style-guide' is linked, from the next turn: ")
    assert (home / "plugins" / "style-guide").is_symlink()
    assert speaking(buzz) == {"style-guide"}
    (again,) = buzz("plugin", "install", "--link", EXAMPLES / "style-guide", "--json").rows
    assert (again["plugin"], again["already"]) == ("style-guide", True)
    (gone,) = buzz("plugin", "remove", "style-guide", "--json").rows
    assert gone == {
        "plugin": "style-guide", "was_link": True, "kept": str(EXAMPLES / "style-guide"), "data": None,
        "from": "the next turn",
    }  # fmt: skip
    assert speaking(buzz) == set()
    assert (EXAMPLES / "style-guide" / "plugin.toml").exists()


@pytest.mark.req("CLI-01")
def test_a_new_plugin_works_at_the_first_try(buzz: Buzz, work: Path) -> None:
    done = buzz("plugin", "new", "first", "--dir", work / "mine")
    assert (done.code, done.err) == (0, "")
    assert sorted(each.name for each in (work / "mine" / "first").iterdir()) == ["plugin.py", "plugin.toml"]
    for line in done.out.split("\n")[1:-1]:
        command = line.partition(": ")[2].split()
        assert command[0] == "buzz"
    spaced = buzz("plugin", "new", "third", "--dir", work / "my own").out
    assert spaced.count(f"'{work / 'my own' / 'third'}'") == 3, "a shell takes each command as it stands"
    assert buzz("plugin", "validate", work / "mine" / "first").code == 0
    assert speaking(buzz, "--plugin", str(work / "mine" / "first")) == {"first"}
    assert buzz("plugin", "new", "second", "--json").rows == [{"plugin": "second", "path": "second"}]
    assert (work / "second" / "plugin.py").exists()


@pytest.mark.req("CLI-01")
def test_validate_names_file_and_line(buzz: Buzz, tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    folder.mkdir()
    (folder / "plugin.toml").write_text('api = 1\nname = "wrong"\ndescripton = "x"\n', encoding="utf-8")
    (folder / "plugin.py").write_text("def apply(ctx):\n    ctx.agents.addInstructions(id='Not This', text='x')\n")
    done = buzz("plugin", "validate", folder)
    assert (done.code, done.err) == (2, "")
    assert f"{folder}/plugin.py:2: error: " in done.out
    assert f"{folder}/plugin.toml:3: warning: " in done.out
    rows = buzz("plugin", "validate", folder, "--json").rows
    assert {(row["level"], row["line"]) for row in rows} == {("error", 2), ("warning", 3)}
    (folder / "plugin.py").write_text("def apply(ctx):\n    pass\n", encoding="utf-8")
    assert buzz("plugin", "validate", folder).code == 0


@pytest.mark.req("TRN-03", "CLI-01")
def test_the_list_of_harnesses_says_what_each_carries(buzz: Buzz, home: Path) -> None:
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / "parrot.py").write_bytes(PARROT.read_bytes())
    (home / "plugins" / "deaf.py").write_text(
        PARROT.read_text(encoding="utf-8")
        .replace("Capabilities(resume=True)", 'Capabilities(carries_sections=False, key_variables=("DEAF_KEY",))')
        .replace('"parrot"', '"deaf"')
        .replace('return Probe(version="1.0", path=None)', f"raise RuntimeError({HOSTILE!r})"),
        encoding="utf-8",
    )
    rows = {row["harness"]: row for row in buzz("harness", "list", "--json").rows}
    assert rows["parrot"]["carries_sections"] is True
    assert (rows["parrot"]["version"], rows["parrot"]["fault"], rows["parrot"]["resume"]) == ("1.0", None, True)
    assert rows["deaf"]["carries_sections"] is False
    assert rows["deaf"]["fault"].startswith("RuntimeError: ")
    assert rows["deaf"]["key_present"] is False
    out = buzz("harness", "list").out
    assert "sections  none: it builds its own prompt, plugins do not reach it" in out
    assert "model     DEAF_KEY is not set: give it, --model-url, or --rehearse" in out
    assert not set(out) & set("\x1b\x9b\u202e\x07")
    assert buzz("harness", "list", DEAF_KEY="x").out.count("DEAF_KEY is set") == 1
    assert buzz("audit", "turns").out == "no turns\n", "listing runs no turn"


@pytest.mark.req("HAR-01", "CLI-01")
@pytest.mark.claude
def test_claude_is_listed_with_its_version(buzz: Buzz) -> None:
    row = next(each for each in buzz("harness", "list", "--json").rows if each["harness"] == "claude")
    assert (row["plugin"], row["fault"], row["carries_sections"]) == ("claude", None, True)
    assert row["version"]
    assert Path(row["path"]).is_file()
    assert "ANTHROPIC_API_KEY" in row["key_variables"]
