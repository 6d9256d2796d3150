"""Everything is reachable from `buzz`, and help costs next to nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

import buzz_host.cli
from buzz_host.cli import VERBS
from buzz_host.cli import buzz as group
from tests.cli.commands import ROOT, Buzz

HEAVY = ("attr", "attrs", "cattrs", "rich", "ruamel", "sqlite3", "tomlkit")
HOMELESS = {"buzz demo"}
WITHOUT_ARGUMENTS = {"buzz", "buzz plugin", "buzz audit", "buzz harness"}


def commands(command: click.Command, path: str = "buzz") -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, with their paths."""
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None, name
            yield from commands(below, f"{path} {name}")


ALL = dict(commands(group))


@pytest.mark.req("CLI-01")
def test_the_module_has_one_group_and_main() -> None:
    assert [each for each in vars(buzz_host.cli.verbs).values() if isinstance(each, click.Group)] == [group]
    assert callable(buzz_host.cli.main)


@pytest.mark.req("CLI-01")
def test_these_verbs_are_there() -> None:
    assert set(ALL) >= {
        "buzz", "buzz demo", "buzz run", "buzz preview", "buzz harness", "buzz harness list",
        *(f"buzz audit{each}" for each in ("", " turns", " show", " why", " plugin", " verify")),
        *(f"buzz plugin{each}" for each in (
            "", " list", " info", " enable", " disable", " install", " remove", " errors", " new", " validate",
        )),
    }  # fmt: skip


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("path", ALL)
def test_a_command_has_help_json_and_home(path: str) -> None:
    command = ALL[path]
    options = {name for parameter in command.params for name in parameter.opts}
    assert command.help
    assert "--json" in options or isinstance(command, click.Group)
    assert ("--home" in options) == (path not in HOMELESS)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.opts} has no help"


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("path", ALL)
def test_help_of_each_command_fits_a_terminal(path: str, buzz: Buzz) -> None:
    done = buzz(*path.split()[1:], "--help", COLUMNS="80")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: {path} ")
    assert all(len(line) <= 80 for line in done.out.split("\n")), done.out


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("verb", VERBS)
def test_the_short_help_in_the_table_is_shown(verb: str, buzz: Buzz) -> None:
    shown = " ".join(buzz("--help", COLUMNS="100").out.split())
    assert VERBS[verb][1] in shown


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("path", sorted(WITHOUT_ARGUMENTS))
def test_a_group_alone_shows_its_help(path: str, buzz: Buzz) -> None:
    done = buzz(*path.split()[1:])
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: {path} ")


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize("arguments", ["'--help'", "'--version'", "'prun'", "'preview', '--help'", "'run', '--help'"])
def test_help_imports_nothing_of_the_host(arguments: str) -> None:
    program = f"""
import sys
from buzz_host.cli import buzz
try:
    buzz.main([{arguments}])
except SystemExit:
    pass
heavy = [n for n in sys.modules if n.split(".")[0] in {HEAVY}]
host = [n for n in sys.modules if n.startswith(("buzz_host.", "buzz_author.")) and not n.startswith("buzz_host.cli")]
print(heavy, [n for n in host if n != "buzz_host.terminal"], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, encoding="utf-8")
    assert done.stderr.endswith("[] []\n"), done.stderr


@pytest.mark.req("OPS-01")
def test_the_help_of_all_imports_no_event_loop_either() -> None:
    program = "import sys; from buzz_host.cli import buzz; buzz.main(['--help'], standalone_mode=False)"
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; print('asyncio' in sys.modules, file=sys.stderr)"],
        cwd=ROOT, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert done.stderr == "False\n"


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("arguments", "path", "words"),
    [
        ("prun", "buzz", "no command is called 'prun'; did you mean 'run'?"),
        ("xyzzy", "buzz", f"no command is called 'xyzzy'; the commands are: {', '.join(VERBS)}"),
        ("run", "buzz run", "missing argument 'TEXT'"),
        ("audit turns --limit 0", "buzz audit turns", "'--limit': 0"),
        ("preview --trigger x y", "buzz preview", "'x' is not one of 'message', 'steer'"),
        ("run --rehearse a b", "buzz run", "unexpected extra argument"),
        ("--nope", "buzz", "--nope"),
        ("plugin install --link --subdir a x", "buzz plugin install", "--link uses a folder in place"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: str, path: str, words: str, buzz: Buzz) -> None:
    done = buzz(*arguments.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("buzz: ")
    assert words in done.err
    assert done.err.endswith(f"(see `{path} --help`)\n")
    assert done.err.count("\n") == 1


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("words", "expected"),
    [("buzz pl", ["plugin"]), ("buzz audit v", ["verify"]), ("buzz run --re", ["--rehearse", "--record", "--resume"])],
)
def test_the_shell_can_complete(words: str, expected: list[str], buzz: Buzz) -> None:
    done = buzz(_BUZZ_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    assert done.code == 0, done.err
    assert [line.partition(",")[2] for line in done.out.split()] == expected


@pytest.mark.req("OPS-01")
def test_the_shell_gets_its_script_and_help_says_how(buzz: Buzz) -> None:
    assert "_BUZZ_COMPLETE=bash_source buzz" in buzz("--help").out
    assert "complete -o nosort" in buzz(_BUZZ_COMPLETE="bash_source").out


@pytest.mark.req("CLI-01")
def test_the_version(buzz: Buzz) -> None:
    done = buzz("--version")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("buzz 0.")
