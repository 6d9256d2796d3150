"""What went wrong is told where its author or its user looks: with its line, its reason, and beside the turn."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.cli.commands import PARROT, PARROT_OPTIONS, Buzz


def plugin(folder: Path, name: str, code: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(dedent(code), encoding="utf-8")
    return path


BRANCH = """\
    def deeper(settings):
        return settings["branch"]

    def apply(ctx):
        deeper(ctx.settings)
"""


@pytest.mark.req("PLG-02", "OPS-01")
def test_a_fault_names_the_authors_line_in_every_phase(buzz: Buzz, tmp_path: Path) -> None:
    load = plugin(tmp_path, "load", "import json\njson.loads('{')\n")
    apply = plugin(tmp_path, "branch", BRANCH)
    when = plugin(
        tmp_path, "asked", "def apply(ctx):\n    ctx.agents.addInstructions(id='a', text='b', when=lambda a: 1 / 0)\n"
    )
    dispose = plugin(tmp_path, "gone", "def bye():\n    {}['x']\n\ndef apply(ctx):\n    ctx.effect(bye)\n")
    options = [part for path in (load, apply, when, dispose) for part in ("--plugin", path)]
    for verb in ("preview", "run"):
        told = buzz(verb, *PARROT_OPTIONS, *options, "Hello").err
        assert "left out branch: the plugin failed: KeyError: 'branch' (branch.py:2)\n" in told
        assert "left out asked/a: its `when` raised: ZeroDivisionError: division by zero (asked.py:2)\n" in told
        assert "left out load: the plugin failed: JSONDecodeError: " in told
        assert " (load.py:2)\n" in told
        assert "error: gone: fault in dispose: KeyError: 'x' (gone.py:2)\n" in told


@pytest.mark.req("PLG-02", "OPS-01")
def test_errors_info_and_harnesses_can_be_asked_of_a_plugin_by_its_path(buzz: Buzz, tmp_path: Path) -> None:
    path = plugin(tmp_path, "branch", BRANCH)
    (row,) = [each for each in buzz("plugin", "errors", "--plugin", path, "--json").rows if each["plugin"] == "branch"]
    assert row["message"] == "KeyError: 'branch' (branch.py:2)"
    first, second, *_ = row["traceback"].split("\n")
    assert first == "Traceback (most recent call last):"
    assert second == f'  File "{path}", line 5, in apply', "it begins with the author's own frame"
    assert "(branch.py:2)" in buzz("plugin", "info", "branch", "--plugin", path).out
    assert "branch" in buzz("plugin", "list", "--plugin", path).out
    assert "parrot" in [row["harness"] for row in buzz("harness", "list", "--plugin", PARROT, "--json").rows]


@pytest.mark.req("PLG-02")
def test_the_traceback_of_a_syntax_error_is_its_file_and_line(buzz: Buzz, tmp_path: Path) -> None:
    path = plugin(tmp_path, "odd", "def apply(ctx)\n    pass\n")
    (row,) = [each for each in buzz("plugin", "errors", "--plugin", path, "--json").rows if each["plugin"] == "odd"]
    assert row["message"] == f"{path}:1: SyntaxError: expected ':'"
    assert f'File "{path}", line 1' in row["traceback"]
    assert "importlib" not in row["traceback"]
    assert "buzz_host" not in row["traceback"]


@pytest.mark.req("HAR-02", "OPS-01")
def test_a_missing_harness_names_the_plugins_that_may_have_brought_it(buzz: Buzz, tmp_path: Path) -> None:
    failed = plugin(tmp_path, "echoing", "def apply(ctx):\n    ctx.agents.registerHarnes(1)\n")
    late = plugin(tmp_path, "late", "import time\ndef apply(ctx):\n    time.sleep(4)\n")
    done = buzz("preview", "--plugin", failed, "--plugin", late, "--harness", "echo", "Hello")
    assert (done.code, done.out) == (2, "")
    (line,) = [each for each in done.err.split("\n") if each.startswith("buzz: ")]
    assert line.startswith("buzz: no harness is called 'echo'; ")
    assert (
        "plugin 'echoing' (apply): AttributeError: ctx.agents has no 'registerHarnes'; "
        "did you mean 'registerHarness'? (echoing.py:2)"
    ) in line
    assert "plugin 'late' (starting): not active yet after 2 s" in line


@pytest.mark.req("PLG-02", "OPS-01")
def test_a_plugin_that_is_late_is_told_once(buzz: Buzz, tmp_path: Path) -> None:
    late = plugin(tmp_path, "late", "import time\ndef apply(ctx):\n    time.sleep(4)\n")
    told = buzz("preview", *PARROT_OPTIONS, "--plugin", late, "Hello").err
    assert [line for line in told.split("\n") if "late" in line] == [
        "left out late: the plugin was still starting: not active yet after 2 s"
    ]


@pytest.mark.req("PLG-02")
def test_a_task_that_nobody_awaited_is_a_fault(buzz: Buzz, tmp_path: Path) -> None:
    code = """\
        import asyncio

        async def poll():
            raise KeyError("no feed")

        async def apply(ctx):
            task = asyncio.create_task(poll())
            ctx.effect(lambda: task.cancel() and None)
            awaited = asyncio.create_task(poll())
            try:
                await awaited
            except KeyError:
                pass
    """
    path = plugin(tmp_path, "feed", code)
    for verb in ("preview", "run"):
        told = buzz(verb, *PARROT_OPTIONS, "--plugin", path, "Hello").err
        assert "in task: KeyError: 'no feed' (feed.py:4)\n" in told
        assert told.count("in task: ") == 1


@pytest.mark.req("SPC-02", "OPS-01")
def test_what_is_odd_in_the_files_of_a_turn_is_told_beside_it(buzz: Buzz, home: Path) -> None:
    agents = home / "agents"
    agents.mkdir(parents=True)
    (agents / "release.md").write_text(
        "---\nname: rel\ndescription: x\nefort: high\nbuz:\n  cwd: /\n---\nHello.\n", encoding="utf-8"
    )
    (agents / "broken.md").write_text("---\nname: broken\n---\n", encoding="utf-8")
    folder = home / "plugins" / "freeze"
    folder.mkdir(parents=True)
    (folder / "plugin.toml").write_text(
        'name = "freeze"\nversoin = "1"\n[config.branch]\ntype = "string"\ndefault = "x"\n', encoding="utf-8"
    )
    (folder / "plugin.py").write_text("def apply(ctx): pass\n", encoding="utf-8")
    (home / "buzz.toml").write_text(
        'default_agnet = "dev"\ndisabled_tool_plugins = ["freze"]\n[agents.mian]\nplugins_off = ["zzz"]\n'
        "[plugins.freeze]\nbranch = 5\n[plugins.freezer]\nx = 1\n[plugins.elsewhere]\nx = 1\n",
        encoding="utf-8",
    )
    of_all = [
        "buzz.toml: default_agnet: this key is not known; did you mean default_agent?",
        "buzz.toml: agents.mian: no agent is called 'mian'; did you mean 'main'?",
        "buzz.toml: disabled_tool_plugins: no plugin is called 'freze'; did you mean 'freeze'?",
        "buzz.toml: agents.mian.plugins_off: no plugin is called 'zzz'; buzz plugin list",
        "buzz.toml: plugins.freezer: no plugin is called 'freezer'; did you mean 'freeze'?",
        "buzz.toml: plugins.freeze.branch: expected a text, found the number 5; the plugin's default holds",
        f"{folder / 'plugin.toml'}: versoin: this key is not known; did you mean version?",
    ]
    line_2 = "the agent is called 'rel' after this key, not 'release' after its file: rename one"
    of_rel = [
        f"{agents / 'release.md'}:4: unknown key 'efort' is ignored; did you mean 'effort'?",
        f"{agents / 'release.md'}:5: unknown key 'buz' is ignored; did you mean 'buzz'?",
        f"{agents / 'release.md'}:2: {line_2}",
    ]

    def told(*command: str) -> list[str]:
        done = buzz(*command)
        assert done.code == 0, done
        return [line.removeprefix("warning: ") for line in done.err.split("\n") if line.startswith("warning: ")]

    assert sorted(told("preview", *PARROT_OPTIONS, "Hello")) == sorted(of_all)
    assert sorted(told("preview", *PARROT_OPTIONS, "--agent", "rel", "--json", "Hello")) == sorted(of_all + of_rel)
    assert sorted(told("run", *PARROT_OPTIONS, "--agent", "rel", "Hello")) == sorted(of_all + of_rel)

    rows = buzz("plugin", "errors", "--json").rows
    elsewhere = "buzz.toml: plugins.elsewhere: no plugin is called 'elsewhere'; buzz plugin list"
    assert {row["message"] for row in rows if row["level"] == "warning"} == {*of_all, *of_rel, elsewhere}
    (fault,) = [row["message"] for row in rows if row["level"] == "error"]
    assert fault.startswith(f"{agents / 'broken.md'}:1: no 'description'")
    unknown = buzz("preview", "--agent", "nobody", "Hello").err
    assert f"; the agents are: dev, main, rel; not usable is {agents / 'broken.md'}:1: " in unknown

    buzz("plugin", "disable", "freeze")
    assert not [line for line in told("preview", *PARROT_OPTIONS, "Hello") if "branch" in line or "versoin" in line]


@pytest.mark.req("OPS-01", "PLG-04")
def test_a_broken_file_is_named_by_path_and_line(buzz: Buzz, home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / "buzz.toml").write_text("x = [", encoding="utf-8")
    assert buzz("preview", "Hello").err.startswith(f"buzz: {home / 'buzz.toml'}: line 1, column 6: ")
    (home / "buzz.toml").write_text("default_agent = 5", encoding="utf-8")
    assert buzz("preview", "Hello").err.startswith(f"buzz: {home / 'buzz.toml'}: default_agent: expected a text")
    (home / "buzz.toml").unlink()
    folder = tmp_path / "freeze"
    folder.mkdir()
    (folder / "plugin.toml").write_text('name = "freeze"\nversion = 5\n', encoding="utf-8")
    (folder / "plugin.py").write_text("def apply(ctx): pass\n", encoding="utf-8")
    done = buzz("preview", "--plugin", folder, "Hello")
    assert done.err == f"buzz: {folder / 'plugin.toml'}:2: version: expected a text, found the number 5\n"


@pytest.mark.req("OPS-01", "PLG-01")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ctx.agents.addInstruction(id='a')", "ctx.agents has no 'addInstruction'; did you mean 'addInstructions'?"),
        ("ctx.agents.addSkill(1)", "this release of Buzz has no ctx.agents.addSkill; it has addInstructions, "),
        ("ctx.agents.addTool(1)", "addTool takes a tool made with buzz_author.tool or claude_agent_sdk.tool, not int"),
        (
            "ctx.agents.addInstructions(ident='a', text='b')",
            "ctx.agents.addInstructions() got an unexpected keyword argument 'ident'",
        ),
        ("ctx.effect()", "ctx.effect() missing 1 required positional argument: 'disposer'"),
        ("ctx.agnts", "ctx has no 'agnts'; did you mean 'agents'?"),
        ("ctx.settings['x'] = 1", "ctx.settings is read-only; the person's values stand in buzz.toml"),
        ("ctx.settings.update(x=1)", "ctx.settings is read-only; the person's values stand in buzz.toml"),
        ("from .wording import x", "ModuleNotFoundError: plugin 'odd' has no file wording.py (odd.py:3)"),
    ],
)
def test_a_mistake_is_told_in_words_of_what_the_author_wrote(buzz: Buzz, tmp_path: Path, line: str, told: str) -> None:
    path = plugin(tmp_path, "odd", f"def apply(ctx):\n    ctx.log\n    {line}\n")
    done = buzz("preview", *PARROT_OPTIONS, "--plugin", path, "Hello")
    assert told in done.err
    assert "(odd.py:3)" in done.err
    assert "buzz_plugins" not in done.err


@pytest.mark.req("OPS-01", "INS-14")
def test_a_guard_that_asks_for_what_is_not_there_is_told_what_is(buzz: Buzz, tmp_path: Path) -> None:
    code = "def apply(ctx):\n    ctx.agents.addInstructions(id='a', text='b', when=lambda a: a.nam == 'x')\n"
    told = buzz("preview", *PARROT_OPTIONS, "--plugin", plugin(tmp_path, "odd", code), "Hello").err
    assert "AttributeError: an agent's handle has no 'nam'; did you mean 'name'? (odd.py:2)" in told


@pytest.mark.req("CLI-01")
def test_a_link_that_leads_nowhere_is_taken_away_in_so_many_words(buzz: Buzz, home: Path, tmp_path: Path) -> None:
    path = plugin(tmp_path, "odd", "def apply(ctx): pass\n")
    buzz("plugin", "install", "--link", path)
    path.unlink()
    done = buzz("plugin", "remove", "odd")
    assert done.out == f"plugin 'odd' is not linked any more; the link led to {path}, where nothing is\n"


@pytest.mark.req("REG-01", "OPS-01")
def test_on_for_an_agent_while_off_for_all_fails_and_leaves_no_empty_list(buzz: Buzz, home: Path) -> None:
    (home / "plugins").mkdir(parents=True)
    plugin(home / "plugins", "odd", "def apply(ctx): pass\n")
    buzz("plugin", "disable", "odd", "--agent", "dev")
    buzz("plugin", "disable", "odd")
    assert buzz("plugin", "enable", "odd", "--agent", "dev").code == 1
    text = (home / "buzz.toml").read_text(encoding="utf-8")
    assert 'plugins_on = ["odd"]' in text
    assert "plugins_off" not in text
