"""All agents of a home: scopes, shadowing, bad files as rows, and a reload that costs nothing while nothing changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.agents.catalogue import CORE_AGENTS, AgentCatalogue, UnknownAgent
from buzz_host.settings import Home


def an_agent(name: str, description: str = "of the person", prompt: str = "Work.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{prompt}\n"


@pytest.fixture
def at(home: Path) -> Home:
    resolved = Home.resolve(None)
    resolved.agents.mkdir(parents=True, exist_ok=True)
    return resolved


def put(home: Home, file: str, text: str) -> Path:
    path = home.agents / file
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.req("SPC-02")
def test_the_shipped_agents_are_there_in_a_home_that_does_not_exist(home: Path) -> None:
    catalogue = AgentCatalogue.load(Home.resolve(home))
    assert catalogue.names == ("dev", "main")
    assert (catalogue.faults, catalogue.warnings) == ((), ())
    for spec in catalogue.specs:
        assert (spec.scope, spec.source_path) == ("core", CORE_AGENTS / f"{spec.name}.md")
        assert 200 < len(spec.prompt) < 2000
    assert not home.exists()


@pytest.mark.req("SPC-02")
def test_the_persons_agent_shadows_the_shipped_one_by_name_and_not_by_file(at: Home) -> None:
    path = put(at, "mine.md", an_agent("main", prompt="Mine."))
    put(at, "dev.md", an_agent("other"))
    catalogue = AgentCatalogue.load(at)
    assert catalogue.names == ("dev", "main", "other")
    assert catalogue.get("main").prompt == "Mine."
    assert (catalogue.get("main").scope, catalogue.get("main").source_path) == ("user", path)
    assert catalogue.get("dev").scope == "core"


@pytest.mark.req("SPC-02")
def test_one_bad_file_is_a_row_and_the_others_are_there(at: Home) -> None:
    put(at, "good.md", an_agent("good"))
    latin = put(at, "latin.md", "")
    latin.write_bytes(an_agent("latin", "café").encode("latin-1"))
    (at.agents / "nowhere.md").symlink_to(at.agents / "gone")
    put(at, "broken.md", "---\nname: [\n---\nx")
    catalogue = AgentCatalogue.load(at)
    assert catalogue.names == ("dev", "good", "main")
    assert [(fault.scope, fault.note.path.name, fault.note.line) for fault in catalogue.faults] == [
        ("user", "broken.md", 3),
        ("user", "latin.md", 3),
        ("user", "nowhere.md", 1),
    ]
    assert str(catalogue.faults[1]) == f"{latin}:3: the byte 0xe9, expected text in UTF-8"
    with pytest.raises(UnknownAgent, match=r"agent 'latin' cannot be used: .*latin\.md:3: the byte 0xe9"):
        catalogue.get("latin")


@pytest.mark.req("SPC-02")
def test_other_files_are_not_looked_at(at: Home) -> None:
    for name in ("notes.txt", ".hidden.md", "x.md~", ".x.md.swp", "README"):
        put(at, name, "no agent")
    (at.agents / "folder").mkdir()
    catalogue = AgentCatalogue.load(at)
    assert (catalogue.names, catalogue.faults) == (("dev", "main"), ())


@pytest.mark.req("SPC-02", "PLG-08")
def test_two_files_of_one_name_are_two_rows_that_name_each_other(at: Home) -> None:
    first, second = put(at, "a.md", an_agent("my_agent")), put(at, "b.md", an_agent("my-agent"))
    put(at, "c.md", an_agent("other"))
    catalogue = AgentCatalogue.load(at)
    assert catalogue.names == ("dev", "main", "other")
    assert [str(fault) for fault in catalogue.faults] == [
        f"{first}:1: the agent 'my_agent' is also in {second}, expected one file a name ('_' is as '-')",
        f"{second}:1: the agent 'my-agent' is also in {first}, expected one file a name ('_' is as '-')",
    ]


@pytest.mark.req("SPC-02")
def test_an_unknown_agent_is_one_line_with_the_known_ones(at: Home) -> None:
    catalogue = AgentCatalogue.load(at)
    with pytest.raises(BuzzError) as caught:
        catalogue.get("mian")
    assert str(caught.value) == "no agent is called 'mian'; did you mean 'main'? the agents are: dev, main"
    with pytest.raises(BuzzError) as caught:
        catalogue.get("quite-other\n")
    assert str(caught.value) == "no agent is called 'quite-other\\n'; the agents are: dev, main"


@pytest.mark.req("SPC-02")
def test_the_same_catalogue_until_a_file_changes(at: Home) -> None:
    first = AgentCatalogue.load(at)
    assert first.current(at) is first
    path = put(at, "a.md", an_agent("a", "one"))
    second = first.current(at)
    assert second is not first
    assert second.get("a").description == "one"
    assert second.current(at) is second
    state = path.stat()
    put(at, "a.md", an_agent("a", "two"))  # the same size
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    third = second.current(at)
    assert third.get("a").description == "two"
    path.rename(at.agents / "b.md")
    fourth = third.current(at)
    assert fourth.get("a").source_path.name == "b.md"
    (at.agents / "b.md").unlink()
    assert fourth.current(at).names == ("dev", "main")


@pytest.mark.req("SPC-02")
def test_warnings_are_collected(at: Home) -> None:
    put(at, "a.md", "---\nname: a\ndescription: b\nmodle: c\n---\nx")
    (note,) = AgentCatalogue.load(at).warnings
    assert note.message == "unknown key 'modle' is ignored; did you mean 'model'?"
