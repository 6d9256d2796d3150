"""What plugins print never reaches stdout: it is the command's alone, and stderr names who spoke (SEC-04)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import PARROT, PARROT_OPTIONS, Buzz

LOUD = """
import logging, sys, threading, warnings
import click

print("at import", "\\x1b[31mred")
logging.basicConfig(stream=sys.stdout)

def told(agent):
    print("in when")
    return True

def bye():
    print("in the disposer")
    print("no line end", end="")

def apply(ctx):
    print("in apply")
    click.echo("by click")
    sys.stdout.buffer.write(b"octets\\n")
    sys.stdout.writelines(["line one\\n", "line two\\n"])
    print("on stderr \\x1b[2J", file=sys.stderr)
    warnings.warn("be careful \\x1b[0m")
    logging.getLogger("mine").warning("logged")
    def later():
        print("in a thread")
    thread = threading.Thread(target=later)
    thread.start()
    thread.join()
    ctx.agents.addInstructions(id="a", text="Loud.", when=told)
    ctx.effect(bye)
"""
SAID = (
    "at import \\x1b[31mred",
    "in apply",
    "by click",
    "octets",
    "line one",
    "line two",
    "on stderr \\x1b[2J",
    "WARNING:mine:logged",
    "in a thread",
    "in when",
    "in the disposer",
)


@pytest.fixture
def loud(tmp_path: Path) -> Path:
    path = tmp_path / "loud.py"
    path.write_text(LOUD, encoding="utf-8")
    return path


@pytest.mark.req("CLI-01", "SEC-04")
def test_a_preview_is_the_text_to_the_byte_whatever_plugins_print(buzz: Buzz, loud: Path) -> None:
    done = buzz("preview", *PARROT_OPTIONS, "--plugin", loud, "Hello")
    assert done.code == 0
    assert done.out.startswith("<context>\n")
    assert done.out.endswith("Loud.\n</plugin-instructions>\n")
    lines = done.err.split("\n")
    for words in SAID:
        assert f"printed: loud: {words}" in lines
    assert f"warning: loud: UserWarning: be careful \\x1b[0m ({loud}:22)" in lines
    assert "\x1b" not in done.err
    assert any(line.startswith("printed: loud: no line end") for line in lines)


@pytest.mark.req("CLI-01", "SEC-04")
def test_json_stays_json_whatever_plugins_print(buzz: Buzz, loud: Path) -> None:
    for command in (("preview", "--json"), ("run", "--json")):
        done = buzz(*command, *PARROT_OPTIONS, "--plugin", loud, "Hello")
        assert done.code == 0
        assert all(row["v"] == 1 for row in done.rows)
        assert "printed: loud: in when\n" in done.err


@pytest.mark.req("CLI-01", "SEC-04")
def test_a_harness_that_prints_on_the_thread_of_the_host_is_named_too(buzz: Buzz, tmp_path: Path) -> None:
    code = PARROT.read_text(encoding="utf-8")
    harness = tmp_path / "parrot.py"
    harness.write_text(
        code.replace("        return text\n", '        print("encoding")\n        return text\n'), encoding="utf-8"
    )
    done = buzz("preview", "--plugin", harness, "--harness", "parrot", "--json", "Hello")
    assert len(done.rows) == 1
    assert "printed: parrot: encoding\n" in done.err


@pytest.mark.req("CLI-01", "SEC-04", "PLG-04")
def test_a_package_that_prints_when_it_is_imported(buzz: Buzz, tmp_path: Path, environment: dict[str, str]) -> None:
    package = tmp_path / "site" / "loud_package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('print("hello from the package")\nMANIFEST = 5\n', encoding="utf-8")
    (package / "rules.py").write_text('print("rules")\ndef apply(ctx): pass\n', encoding="utf-8")
    described = tmp_path / "site" / "loud_package-1.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: loud-package\nVersion: 1\n", encoding="utf-8")
    (described / "entry_points.txt").write_text("[buzz.plugins]\nrules = loud_package.rules\n", encoding="utf-8")
    path = f"{tmp_path / 'site'}:{environment['PYTHONPATH']}"
    done = buzz("preview", *PARROT_OPTIONS, "--json", "Hello", PYTHONPATH=path)
    assert len(done.rows) == 1
    assert "printed: rules: hello from the package\n" in done.err
    assert "printed: rules: rules\n" in done.err
