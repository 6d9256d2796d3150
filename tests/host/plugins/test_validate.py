"""`plugin new` and `plugin validate`: what is made is right, and what is wrong is named by file and line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.errors import BuzzError, InvalidName
from buzz_host.plugins.discovery import discover
from buzz_host.plugins.scaffold import new_plugin, scaffold
from buzz_host.plugins.sources import PluginPathError
from buzz_host.plugins.validate import validate
from buzz_host.settings import Home
from tests.host.plugins.making import running, source_of, spoken, write_plugin

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"


@pytest.mark.req("CLI-01")
@pytest.mark.anyio
async def test_a_new_plugin_works_at_the_first_try(tmp_path: Path) -> None:
    folder = new_plugin("my-first_1", tmp_path / "made" / "here")
    assert sorted(path.name for path in folder.iterdir()) == ["plugin.py", "plugin.toml"]
    assert validate(folder) == ()
    discovery = discover(Home(tmp_path / "home"), [folder], entry_points=False)
    assert (discovery.faults, discovery.warnings) == ((), ())
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile(discovery.sources)
        assert await runtime.settled() == ()
        assert spoken(runtime.contributions) == [
            ("my-first_1/main", "Answer in short sentences, and say so when you are not sure.")
        ]


@pytest.mark.req("CLI-01")
@pytest.mark.anyio
async def test_what_the_comments_of_a_new_plugin_show_works_as_well(tmp_path: Path) -> None:
    files = scaffold("a")
    code = files["plugin.py"].replace("    # ", "    ").replace("    #\n", "\n")
    code = "\n".join(line for line in code.split("\n") if not line.startswith(("    For some", "    Clean-up")))
    manifest = "\n".join(
        line.removeprefix("# ") for line in files["plugin.toml"].split("\n") if not line.startswith("# A setting")
    )
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "plugin.py").write_text(code, encoding="utf-8")
    (folder / "plugin.toml").write_text(manifest, encoding="utf-8")
    assert validate(folder) == ()
    source = source_of(folder)
    assert dict(source.defaults) == {"tone": "friendly"}
    async with running(tmp_path / "home") as runtime:
        runtime.reconcile([source])
        await runtime.settled()
        assert [key for key, _ in spoken(runtime.contributions)] == ["a/dev", "a/main"]


@pytest.mark.req("CLI-01", "PLG-08", "SEC-03")
@pytest.mark.parametrize("name", ["../a", "A", "a b", "", "bus", 'a"'])
def test_a_name_that_cannot_be_makes_nothing(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidName):
        new_plugin(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.req("CLI-01")
def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    new_plugin("a", tmp_path)
    (tmp_path / "a" / "plugin.py").write_text("mine", encoding="utf-8")
    with pytest.raises(BuzzError, match="is there already"):
        new_plugin("a", tmp_path)
    assert (tmp_path / "a" / "plugin.py").read_text(encoding="utf-8") == "mine"
    (tmp_path / "b").write_text("", encoding="utf-8")
    with pytest.raises(BuzzError, match="cannot be made"):
        new_plugin("c", tmp_path / "b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.req("CLI-01")
def test_the_examples_of_the_documentation_are_clean() -> None:
    for folder in EXAMPLES.iterdir():
        assert validate(folder) == ()


def findings(tmp_path: Path, code: str, **options: str) -> list[str]:
    folder = write_plugin(tmp_path, "a", dedent(code), **options)
    return [str(each).removeprefix(f"{folder}/") for each in validate(folder)]


BAD_ID = (
    "plugin.py:2: error: plugin 'a': instructions id 'A' is not allowed: use 1 to 64 of a-z, 0-9, '.', '_' and '-', "
    "starting with a letter or a digit"
)
TOO_LONG = (
    "plugin.py:3: error: plugin 'a': instructions 'b': the text has 4098 bytes of UTF-8 after trimming, "
    "the limit is 4096: shorten it"
)


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = (", "plugin.py:1: error: SyntaxError: '(' was never closed"),
        ("x = 1", "plugin.py: error: a plugin needs a function apply(ctx), and this has none"),
        ("def apply(): pass", "plugin.py:1: error: apply is called as apply(ctx): give it one argument"),
        ("def apply(a, b): pass", "plugin.py:1: error: apply is called as apply(ctx): give it one argument"),
        ("async def apply(ctx, *, b): pass", "plugin.py:1: error: apply is called as apply(ctx): give it one argument"),
        (
            "inject = 'agents'\ndef apply(ctx): pass",
            "plugin.py:1: error: inject: expected a list of names, found a text: write inject = ['agents']",
        ),
        (
            "inject: tuple = (\n'agents',\n'clock')\ndef apply(ctx): pass",
            "plugin.py:3: warning: inject: the plugin will wait until the host has a service 'clock'",
        ),
        ("def apply(ctx):\n    ctx.agents.addInstructions(id='A', text='x')", BAD_ID),
        (f"BIG = '{'é' * 2049}'\ndef apply(ctx):\n    ctx.agents.add_instructions(id='b', text=BIG)", TOO_LONG),
        (
            "def apply(ctx):\n    ctx.agents.addInstructions({'id': 'b', 'text': ' '})",
            "plugin.py:2: error: plugin 'a': instructions 'b': the text is empty; say something, or register nothing",
        ),
        (
            "def apply(ctx):\n    ctx.agents.addInstructions(id='b')",
            "plugin.py:2: error: plugin 'a': instructions 'b': text must be a str, not NoneType",
        ),
        (
            "def apply(ctx):\n    ctx.agents.addInstructions(AgentInstructions('b', 'x', True))",
            "plugin.py:2: error: plugin 'a': instructions 'b': when must be a function of the agent, not bool",
        ),
        (
            "def apply(ctx):\n" + "    ctx.agents.addInstructions(id='b', text='x')\n" * 2,
            "plugin.py:3: error: instructions 'b' are registered in line 2 too: an id may stand once",
        ),
        (
            "import other.part\ndef apply(ctx): pass",
            "plugin.py:1: error: a plugin reaches its own files by relative imports only: write `from . import other`",
        ),
        (
            "def apply(ctx):\n    from other import x",
            "plugin.py:2: error: a plugin reaches its own files by relative imports only: write `from . import other`",
        ),
    ],
)  # fmt: skip
def test_what_can_be_seen_without_running_is_named_by_line(tmp_path: Path, code: str, expected: str) -> None:
    assert findings(tmp_path, code, other__py="") == [expected]


@pytest.mark.req("CLI-01")
def test_what_is_computed_is_let_pass(tmp_path: Path) -> None:
    code = """
        import json
        from . import other
        from .other import x
        NAMES = ["agents"]
        inject = NAMES
        def make(ctx, **more):
            ctx.agents.addInstructions(id=f"a{x}", text=open("x").read(), when=lambda agent: True)
            ctx.agents.addInstructions(id=f"b{x}", text=json.dumps(x))
            ctx.agents.addInstructions(**more)
            ctx.agents.addInstructions(more)
            ctx.agents.addInstructions({**more})
            (lambda: None)()
        apply = make
    """
    assert findings(tmp_path, code, other__py="x = 1") == []
    assert findings(tmp_path, "from .other import *", other__py="def apply(ctx): pass") == []


@pytest.mark.req("CLI-01")
def test_the_manifest_is_judged_with_lines_too(tmp_path: Path) -> None:
    code = "def apply(ctx): pass"
    assert findings(tmp_path, code, manifest="verison = '1'\n[config.x]\ndesc = 'y'\n") == [
        "plugin.toml:3: warning: verison: this key is not known; did you mean version?",
        "plugin.toml:5: warning: config.x.desc: this key is not known; the keys here are default, description, type",
    ]
    assert findings(tmp_path, code, manifest="version = 1\n") == [
        "plugin.toml:3: error: version: expected a text, found the number 1"
    ]
    folder = tmp_path / "a"
    (folder / "plugin.toml").rename(folder / "plugin.tml")
    assert [each.message for each in validate(folder)] == [
        f"{folder}/plugin.tml: a plugin's manifest is called plugin.toml: rename it"
    ]


@pytest.mark.req("CLI-01")
def test_every_module_of_a_plugin_is_looked_at(tmp_path: Path) -> None:
    first, second = findings(tmp_path, "def apply(ctx): pass", b__py="x = (", c__py="x = '\0'")
    assert first == "b.py:1: error: SyntaxError: '(' was never closed"
    assert second.startswith("c.py: error: ")
    assert second.endswith("source code string cannot contain null bytes")


@pytest.mark.req("CLI-01")
def test_a_single_file_is_judged_and_a_missing_path_is_the_persons_error(tmp_path: Path) -> None:
    file = tmp_path / "notes.py"
    file.write_text("import json\nraise SystemExit", encoding="utf-8")
    assert [str(each) for each in validate(file)] == [
        f"{file}: error: a plugin needs a function apply(ctx), and this has none"
    ]
    with pytest.raises(PluginPathError, match="there is no such file or folder"):
        validate(tmp_path / "missing.py")


@pytest.mark.req("CLI-01")
@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=120))
def test_no_text_makes_it_fail(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = write_plugin(tmp_path_factory.mktemp("x"), "a", text, manifest=text)
    for finding in validate(folder):
        assert finding.message
