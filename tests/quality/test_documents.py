"""What README and docs show works: Python compiles, TOML and JSON parse, commands exist, links lead somewhere.

The pages are found, not listed, so a new page is judged from its first day.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import attrs
import click
import pytest

from tests.quality.tree import ROOT, documents, relative

PAGES_WE_OWE = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/plugin-architecture.md",
    "docs/plugin-authoring-guide.md",
    "docs/requirements.md",
)
PAGES_WITH_THE_LIMIT = ("docs/plugin-architecture.md", "docs/plugin-authoring-guide.md")
SHELL_LANGUAGES = frozenset({"bash", "console", "sh", "shell"})
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w+-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)(?P=fence) *$",
    re.MULTILINE | re.DOTALL,
)
LINK = re.compile(r"\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")


@attrs.frozen
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _blocks() -> Iterator[Block]:
    for path in documents():
        page = path.read_text(encoding="utf-8")
        for found in FENCE.finditer(page):
            indent = found["indent"]
            text = "\n".join(line.removeprefix(indent) for line in found["text"].split("\n"))
            line = page.count("\n", 0, found.start()) + 1
            yield Block(relative(path), line, found["language"], text)


BLOCKS = tuple(_blocks())


def _of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def buzz_commands(text: str) -> Iterator[list[str]]:
    """The words after `buzz` of each command in a shell block, comments and redirections taken off."""
    lines = text.replace("\\\n", " ").split("\n")
    for line in lines:
        try:
            words = shlex.split(line.strip().removeprefix("$ "), comments=True)
        except ValueError:
            if line.startswith("$ ") or not any(each.startswith("$ ") for each in lines):
                raise
            continue  # what a command printed need not be one
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if not words or Path(words[0]).name != "buzz":
            continue
        ends = [i for i, word in enumerate(words) if word in {"|", "||", "&&", ";", ">", ">>", "<", "&"}]
        yield words[1 : min(ends, default=len(words))]


def _root_command() -> click.Group:
    """The command behind `buzz`."""
    found = [
        value
        for value in vars(importlib.import_module("buzz_host.cli.verbs")).values()
        if isinstance(value, click.Group)
    ]
    assert len(found) == 1, "buzz_host.cli.verbs should hold exactly one click group"
    return found[0]


def unknown_words(words: list[str], root: click.Group) -> list[str]:
    """The first verb that does not exist, or each option that the command does not have."""
    command: click.Command = root
    context = click.Context(root, info_name="buzz")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        verb = rest.pop(0)
        below = command.get_command(context, verb)
        if below is None:
            return [verb]
        command, context = below, click.Context(below, info_name=verb, parent=context)
    known = {"--help"}
    for parameter in command.get_params(context):
        known.update(parameter.opts, parameter.secondary_opts)
    if "--" in rest:
        rest = rest[: rest.index("--")]
    return [word for word in rest if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


@pytest.mark.parametrize("page", PAGES_WE_OWE)
def test_a_page_we_owe_is_there(page: str) -> None:
    assert (ROOT / page).is_file()


def test_the_readme_shows_a_plugin_and_commands() -> None:
    languages = {block.language for block in BLOCKS if block.page == "README.md"}
    assert "python" in languages
    assert languages & SHELL_LANGUAGES


@pytest.mark.parametrize("block", _of("python", "py"), ids=str)
def test_python_in_a_page_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)


@pytest.mark.parametrize("block", _of("toml"), ids=str)
def test_toml_in_a_page_parses(block: Block) -> None:
    tomllib.loads(block.text)


@pytest.mark.parametrize("block", _of("json", "jsonl"), ids=str)
def test_json_in_a_page_parses(block: Block) -> None:
    for document in block.text.strip().split("\n") if block.language == "jsonl" else [block.text]:
        json.loads(document)


@pytest.mark.parametrize("block", _of(*SHELL_LANGUAGES), ids=str)
def test_commands_in_a_page_exist(block: Block) -> None:
    for words in buzz_commands(block.text):
        assert unknown_words(words, _root_command()) == [], f"{block}: buzz {' '.join(words)}"


@pytest.mark.parametrize("page", documents(), ids=relative)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in LINK.finditer(prose):
        target = found["target"].partition("#")[0]
        if target and not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), f"{relative(page)}: {found.group()}"


@pytest.mark.req("INS-13")
@pytest.mark.parametrize("page", PAGES_WITH_THE_LIMIT)
def test_a_guide_gives_the_limit_that_the_code_has(page: str) -> None:
    from buzz_author.instructions import INSTRUCTION_MAX_BYTES

    assert re.search(rf"\b{INSTRUCTION_MAX_BYTES}\b", (ROOT / page).read_text(encoding="utf-8"))


def test_the_commands_of_a_block_are_found() -> None:
    text = "# a comment\n$ buzz run --agent main \\\n  'hello there'\nKEY=1 .venv/bin/buzz demo | less\nmake demo\n"
    assert list(buzz_commands(text)) == [["run", "--agent", "main", "hello there"], ["demo"]]


def test_unknown_verbs_and_options_are_found() -> None:
    root = click.Group("buzz", commands=[click.Group("plugin", commands=[click.Command("list", params=[
        click.Option(["--json/--no-json"]), click.Option(["--agent"]),
    ])])])  # fmt: skip
    assert unknown_words(["plugin", "list", "--json", "--agent=main", "--help"], root) == []
    assert unknown_words(["plug"], root) == ["plug"]
    assert unknown_words(["plugin", "lst"], root) == ["lst"]
    assert unknown_words(["plugin", "list", "--all"], root) == ["--all"]
