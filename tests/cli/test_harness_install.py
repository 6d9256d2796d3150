"""`buzz harness install`, `uninstall`, `login`, `list` and `doctor`, as people and programs meet them."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import DEADLINE_S, PARROT, Buzz
from tests.cli.hosts import serving
from tests.cli.mounts import Surrounded
from tests.cli.terminals import on_a_terminal, typing
from tests.host.programs.registry import TOY, TOY_FILES, Registry, need_npm, running

# A harness of others, with a program that can be fetched and a login of its own.
TOYS = (
    PARROT.read_text(encoding="utf-8").replace('"parrot"', '"toy"').replace('"Parrot"', '"Toy"')
    + f"""

from buzz_author.harness import LoginCommand, NpmProgram

Parrot.program = NpmProgram({TOY.package!r}, {TOY.version!r}, {TOY.executable!r}, 1, integrity={{INTEGRITY}})
Parrot.capabilities = Capabilities(key_variables=("TOY_KEY",), inherits=("PATH",))
Parrot.logged_in = lambda self, folder: (folder / "login").exists()
Parrot.login = lambda self, folder: LoginCommand(
    ("/bin/sh", "-c", "echo who are you; read name; test \\"$name\\" && echo $name > $HOME/login"),
    {{"HOME": str(folder), "PATH": "/bin:/usr/bin"}},
)


async def probe(self):
    found = self.programs.find("toy", self.program)
    return Probe(found.version, found.path) if found else Probe(fault="no toy is here")


Parrot.probe = probe
inject = ("agents", "programs")


def apply(ctx):
    harness = Parrot()
    harness.programs = ctx.programs
    ctx.agents.registerHarness(harness)
"""
)


@pytest.fixture
def registry() -> Iterator[Registry]:
    need_npm()
    with running() as registry:
        yield registry


@pytest.fixture(autouse=True)
def no_shared_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs of these tests are those of their homes."""
    monkeypatch.delenv("BUZZ_PROGRAMS", raising=False)


def with_toys(home: Path, integrity: str = "") -> Path:
    folder = home / "plugins"
    folder.mkdir(parents=True, exist_ok=True)
    pinned = {TOY.package: integrity} if integrity else {}
    (folder / "toy.py").write_text(TOYS.replace("{INTEGRITY}", repr(pinned)), encoding="utf-8")
    return folder


def npm_settings(registry: Registry, home: Path) -> dict[str, str]:
    found = registry.environment(home.parent)
    return {name: value for name, value in found.items() if name.startswith("npm_")}


@pytest.mark.req("HAR-06", "OPS-01")
def test_a_program_is_installed_listed_and_taken_out(buzz: Buzz, home: Path, registry: Registry) -> None:
    with_toys(home, registry.publish(TOY.package, TOY.version, TOY_FILES))
    npm = npm_settings(registry, home)
    (before,) = [row for row in buzz("harness", "list", "--json").rows if row["harness"] == "toy"]
    assert (before["fault"], before["install"], before["pinned"]) == (
        "no toy is here",
        "buzz harness install toy",
        None,
    )
    assert (before["login"], before["reaches_a_model"]) == ("logged out", False)
    done = buzz("harness", "install", "toy", **npm)
    assert done.code == 0, done.err
    assert done.err == "toy: fetching @buzz/toy@1.2.3\n"
    place = home / "harnesses" / "toy" / "1.2.3"
    assert done.out.startswith(
        f"toy 1.2.3 is installed, 1 MB in {place}\n  package    @buzz/toy 1.2.3\n  integrity  sha512-"
    )
    assert "the one that Buzz was tested with" in done.out
    (listed,) = [row for row in buzz("harness", "list", "--json").rows if row["harness"] == "toy"]
    assert (listed["fault"], listed["version"], listed["pinned"], listed["install"]) == (None, "1.2.3", True, None)
    done = buzz("harness", "install", "toy", "--json", **npm)
    (row,) = done.rows
    assert (done.code, done.err, row["already"], row["verified"], row["path"]) == (0, "", True, True, str(place))
    (gone,) = buzz("harness", "uninstall", "toy", "--json").rows
    assert (gone["harness"], gone["versions"], gone["node"]) == ("toy", ["1.2.3"], [])
    assert not place.exists()
    done = buzz("harness", "uninstall", "toy")
    assert (done.code, done.out) == (2, "")
    assert done.err == f"buzz: toy is not installed in {home / 'harnesses'}: nothing was taken out\n"


@pytest.mark.req("HAR-06", "CLI-01")
def test_it_goes_where_the_running_host_looks(
    buzz: Buzz, home: Path, work: Path, environment: dict[str, str], registry: Registry, tmp_path: Path
) -> None:
    with_toys(home, registry.publish(TOY.package, TOY.version, TOY_FILES))
    shared = tmp_path / "shared"
    with serving({**environment, "BUZZ_PROGRAMS": str(shared)}, work) as host:
        (row,) = buzz("harness", "install", "toy", "--json", **npm_settings(registry, home)).rows
        assert row["path"] == str(shared / "toy" / "1.2.3")
        (listed,) = [row for row in buzz("harness", "list", "--json").rows if row["harness"] == "toy"]
        assert (listed["fault"], listed["version"]) == (None, "1.2.3")
        host.end()
    assert not (home / "harnesses").exists()


@pytest.mark.req("OPS-01")
def test_a_terminal_shows_what_is_fetched_and_ends_with_what_was(
    home: Path, work: Path, environment: dict[str, str], registry: Registry
) -> None:
    with_toys(home, registry.publish(TOY.package, TOY.version, TOY_FILES))
    code, shown = on_a_terminal(
        "harness", "install", "toy", environment={**environment, **npm_settings(registry, home)}, work=work, columns=120
    )
    assert code == 0
    before, _, after = shown.partition("\r\x1b[Ktoy: fetching @buzz/toy@1.2.3")
    assert before == ""
    assert "\r\x1b[Ktoy 1.2.3 is installed, 1 MB in " in after


@pytest.mark.req("HAR-06", "OPS-01")
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("claude",), "claude comes with a Python package, not by this command: pip install 'buzz-agents[claude]'"),
        (("direct",), "direct comes with a Python package, not by this command: pip install 'buzz-agents[direct]'"),
        (("codx",), "no harness is called 'codx'; did you mean 'codex'?"),
        (("parrot",), "parrot has no program that Buzz can fetch: its plugin says how it is installed; others: "),
        (("codex", "goose", "--version", "1.0.0"), "--version is for one harness at a time"),
        (("toy", "--version", "../1"), "'../1' is no version: give one such as 1.2.3"),
    ],
)
def test_what_cannot_be_installed_is_one_line(buzz: Buzz, home: Path, arguments: tuple[str, ...], line: str) -> None:
    (with_toys(home) / "parrot.py").write_bytes(PARROT.read_bytes())
    done = buzz("harness", "install", *arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"buzz: {line}")
    assert done.err.count("\n") == 1
    assert not (home / "harnesses" / "toy").exists()


@pytest.mark.req("OPS-01")
def test_a_folder_that_cannot_be_made_is_one_line(buzz: Buzz, home: Path) -> None:
    with_toys(home)
    (home / "file").write_text("", encoding="utf-8")
    done = buzz("harness", "install", "toy", BUZZ_PROGRAMS=str(home / "file" / "programs"))
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert done.err.startswith(f"buzz: {home / 'file' / 'programs'}: cannot be used (Not a directory)")


@pytest.mark.req("HAR-06", "OPS-01")
def test_a_disk_that_gets_full_is_one_line_and_leaves_nothing(
    home: Path, registry: Registry, surrounded: Surrounded, tmp_path: Path
) -> None:
    large = base64.b64encode(os.urandom(6_000_000)).decode()
    with_toys(home, registry.publish(TOY.package, TOY.version, {**TOY_FILES, "large": large}))
    disk = tmp_path / "disk"
    disk.mkdir()
    done = surrounded(
        f"mount -t tmpfs -o size=4m buzz-test '{disk}'; \"$@\" || code=$?; ls -A '{disk}' >&2; exit $code",
        "harness", "install", "toy", BUZZ_PROGRAMS=str(disk), HOME=str(tmp_path), **npm_settings(registry, home),
    )  # fmt: skip
    assert (done.code, done.out) == (2, "")
    said = done.err.split("\n")
    assert said[0] == "toy: fetching @buzz/toy@1.2.3"
    assert said[1].startswith("buzz: @buzz/toy@1.2.3: was not installed: the disk is full (")
    assert said[2:] == [".change.lock", ""]


@pytest.mark.req("HAR-06", "OPS-01", "OPS-03")
def test_an_interrupt_ends_the_fetching_and_leaves_nothing(
    home: Path, work: Path, environment: dict[str, str], registry: Registry
) -> None:
    with_toys(home, registry.publish(TOY.package, TOY.version, TOY_FILES))
    registry.held.clear()
    with typing(
        "harness", "install", "toy", environment={**environment, **npm_settings(registry, home)}, work=work
    ) as person:
        assert registry.asked_for_archive.wait(DEADLINE_S)
        person.type("\x03")
        assert person.end() == 130
    assert [each.name for each in (home / "harnesses").iterdir()] == [".change.lock"]


@pytest.mark.req("HAR-06", "SEC-02")
def test_a_login_is_the_programs_own_and_counts_as_a_way_to_a_model(buzz: Buzz, home: Path) -> None:
    with_toys(home)
    done = buzz("run", "--harness", "toy", "hello")
    assert done.code == 2
    assert "set TOY_KEY, log in with `buzz harness login toy`, or give --model-url URL" in done.err
    done = buzz("harness", "login", "toy", stdin=b"\n")
    assert (done.code, done.out) == (1, "who are you\n")
    assert done.err == "toy is not logged in\n"
    done = buzz("harness", "login", "toy", "--json", stdin=b"polly\n")
    assert (done.code, done.err) == (0, "who are you\n")
    assert done.rows == [{"harness": "toy", "exit_code": 0, "logged_in": True}]
    assert (home / "data" / "toy" / "login").read_text(encoding="utf-8") == "polly\n"
    (row,) = [row for row in buzz("harness", "list", "--json").rows if row["harness"] == "toy"]
    assert (row["login"], row["key_present"], row["reaches_a_model"]) == ("logged in", False, True)
    assert "model     logged in" in buzz("harness", "list").out
    assert "has no way to a model" not in buzz("run", "--harness", "toy", "hello").err
    (home / "plugins" / "parrot.py").write_bytes(PARROT.read_bytes())
    done = buzz("harness", "login", "parrot")
    assert (done.code, done.err) == (2, "buzz: Parrot has no login that Buzz knows of\n")


@pytest.mark.req("HAR-06", "HAR-04")
def test_the_doctor_shows_where_the_text_arrived(buzz: Buzz, home: Path) -> None:
    done = buzz("harness", "doctor", "direct", "--json")
    (row,) = done.rows
    assert (done.code, row["state"], row["holds"], row["fault"]) == (0, "holds", True, "")
    assert row["arrived"] == {
        "role": "user", "message": 1, "messages": 1, "newest": True, "last": True, "verbatim": True, "behind": "",
    }  # fmt: skip
    assert (row["tool"], row["exposed"]) == ("answered", [])
    assert buzz("audit", "turns").out == "no turns\n", "nothing of the person's is touched"


@pytest.mark.req("HAR-06", "CLI-01")
def test_the_doctor_asks_the_running_host(buzz: Buzz, home: Path, work: Path, environment: dict[str, str]) -> None:
    (with_toys(home) / "parrot.py").write_bytes(PARROT.read_bytes())
    with serving({**environment, "OPENAI_API_KEY": "of the host"}, work) as host:
        done = buzz("harness", "doctor", "direct", "toy", "parrot", "--json")
        rows = {row["harness"]: row for row in done.rows}
        assert host.end() == (0, b"")
    assert done.code == 1
    assert {name: row["state"] for name, row in rows.items()} == {
        "direct": "holds", "toy": "not here", "parrot": "fails",
    }  # fmt: skip
    assert rows["direct"]["exposed"] == ["OPENAI_API_KEY"]
    assert rows["toy"]["fault"] == "no toy is here"
    assert rows["parrot"]["fault"] == "the program asked no model"


@pytest.mark.req("HAR-06", "OPS-01")
def test_what_is_not_here_is_a_failure_only_where_it_is_named(buzz: Buzz, home: Path) -> None:
    with_toys(home)
    done = buzz("harness", "doctor", "toy")
    assert (done.code, done.out, done.err) == (1, "- Toy (toy) is not here: no toy is here\n", "")
    done = buzz("harness", "doctor", "nobody")
    assert (done.code, done.out) == (2, "")
    done = buzz("harness", "doctor", "codex", "--attached")
    assert (done.code, done.out) == (2, "")
