"""`plugin validate`: what a plugin's calls would do wrong is said before it runs, with what was meant."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from buzz_host.plugins.validate import validate
from tests.host.plugins.making import write_plugin


def findings(tmp_path: Path, code: str, **files: str) -> list[str]:
    folder = write_plugin(tmp_path, "a", dedent(code), **files)
    return [str(each).removeprefix(f"{folder}/plugin.py:") for each in validate(folder)]


@pytest.mark.req("CLI-01", "PLG-01")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ctx.agents.addInstruction(id='a', text='b')",
         "error: ctx.agents has no 'addInstruction'; did you mean 'addInstructions'?"),
        ("agents = ctx.agents; agents.add_notes('main', 'x')",
         "error: ctx.agents has no 'add_notes'; did you mean 'add_note'?"),
        ("ctx.agents.addInstructions('a', 'x')",
         "error: addInstructions takes its arguments by name: addInstructions(id=…, text=…, when=…)"),
        ("ctx.agents.addInstructions({'id': 'a', 'text': 'x', 'wen': f})",
         "error: addInstructions does not know the argument 'wen'; did you mean when?"),
        ("ctx.agents.addInstructions(id='a', txt='x')",
         "error: addInstructions does not know the argument 'txt'; did you mean text?"),
        ("ctx.agents.addInstructions(ident='a', text='x')",
         "error: addInstructions does not know the argument 'ident'; did you mean id?"),
        ("AgentInstructions('a', text='x', wen=f)",
         "error: AgentInstructions does not know the argument 'wen'; did you mean when?"),
        ("ctx.agents.addInstructions(id='a', text='x', when=awaited)",
         "error: `when` is the async function awaited: it is never awaited, and nothing is admitted: write def"),
        ("ctx.agents.addNote('main')",
         "error: addNote: missing a required argument: 'text'; it is called as addNote(agent, text)"),
        ("ctx.agents.addNote('main', ' ')", "error: addNote: the text is empty; say something, or add no note"),
        ("ctx.agents.addNote('main', 5)", "error: addNote: text must be a str, not int"),
        ("ctx.agents.addNote('main', 'x', whom='y')",
         "error: addNote does not know the argument 'whom'; it takes agent, text"),
        ("ctx.agents.addSkill(f)",
         ("error: this release of Buzz has no ctx.agents.addSkill; "
          "it has addInstructions, addNote, addTool, registerHarness, harness")),
        ("ctx.agents.addTool(f, 'x')", "error: addTool: too many positional arguments; it is called as addTool(tool)"),
        ("ctx.agents.harness()",
         "error: ctx.agents.harness is no function: it has turnPrompt, turnNote, wakePrompt and steerPrompt"),
        ("ctx.agnts", "error: ctx has no 'agnts'; did you mean 'agents'?"),
        ("ctx.clock.now()",
         ("error: ctx has no 'clock'; it has agents, effect, log, plugin, settings, spawn; "
          "a service of the host is asked for by name: inject = ['clock']")),
    ],
)  # fmt: skip
def test_a_call_that_will_fail_says_what_was_meant(tmp_path: Path, line: str, expected: str) -> None:
    code = f"async def awaited(agent): return True\ndef f(agent): return True\ndef apply(ctx):\n    {line}\n"
    assert findings(tmp_path, code) == [f"4: {expected}"]


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize(
    "line",
    [
        "ctx.agents.addInstructions(**given)",
        "ctx.agents.addInstructions(given)",
        "ctx.agents.addInstructions(AgentInstructions('a', 'x', f))",
        "ctx.agents.addNote(given, text=given)",
        "ctx.agents.addNote(*given)",
        "ctx.agents.registerHarness(given)",
        "ctx.agents.harness.turnPrompt(given)",
        "given.agents.append(1); mine = given.agents.pop()",
        "ctx.effect(lambda: ctx.log.info('bye')); ctx.settings['x']; ctx.plugin.id",
        "getattr(ctx, 'clock', None)",
    ],
)
def test_what_may_be_right_is_not_said_to_be_wrong(tmp_path: Path, line: str) -> None:
    assert findings(tmp_path, f"given = dict()\ndef f(agent): return True\ndef apply(ctx):\n    {line}\n") == []


@pytest.mark.req("CLI-01", "INS-03")
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("add(id='x', text='1')\nadd(id='x', text='2')", "error"),
        ("add(id='x', text='1')\nif ctx.settings:\n    add(id='x', text='2')", "error"),
        ("if ctx.settings:\n    add(id='x', text='1')\nelse:\n    add(id='x', text='2')", "warning"),
        ("if ctx.settings:\n    add(id='x', text='1')\n    return\nadd(id='x', text='2')", "warning"),
        ("gone = add(id='x', text='1')\ngone()\nadd(id='x', text='2')", "warning"),
        ("def later():\n    add(id='x', text='1')\nadd(id='x', text='2')", "warning"),
    ],
)
def test_an_id_that_stands_twice_is_an_error_unless_only_one_may_run(tmp_path: Path, body: str, expected: str) -> None:
    lines = "".join(f"    {line}\n" for line in body.replace("add(", "ctx.agents.addInstructions(").split("\n"))
    (found,) = findings(tmp_path, f"def apply(ctx):\n{lines}")
    assert f": {expected}: instructions 'x' are registered in line " in found


@pytest.mark.req("CLI-01")
def test_a_relative_import_of_nothing_is_named(tmp_path: Path) -> None:
    code = """\
        from .wording import GREETING
        from .words import GREETING as other
        from . import wording, nothing
        from .. import outside
        from .sub.deep import x
        def apply(ctx): pass
    """
    files = {"wording__py": "GREETING = 1", "sub__py": ""}
    assert findings(tmp_path, code, **files) == [
        "2: error: the plugin has no file words.py",
        "3: error: the plugin has no file nothing.py",
        "4: error: this relative import leads out of the plugin's folder",
        "5: error: the plugin has no file sub/deep.py",
    ]


@pytest.mark.req("CLI-01")
def test_a_single_file_has_nothing_beside_it(tmp_path: Path) -> None:
    alone = tmp_path / "alone.py"
    alone.write_text("from .x import y\ndef apply(ctx): pass\n", encoding="utf-8")
    (found,) = validate(alone)
    assert (found.level, found.line) == ("error", 1)
    assert found.message.startswith("a single .py file stands alone")
