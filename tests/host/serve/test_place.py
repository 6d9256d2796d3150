"""One host a home, in a place that every client finds and nobody else may enter (SEC-01, OPS-03)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.serve.lock import AlreadyServed, ServeLock
from buzz_host.services.place import LOCK_NAME, SOCKET_PATH_MAX_BYTES, Place, place_of, private_folder, socket_path
from buzz_host.settings import Home, HomeError
from buzz_host.settings.filesystems import network_file_system

LONG = "a-folder-of-a-name-that-goes-on-and-on-for-a-good-while"
MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /srv/team rw,relatime - nfs4 server:/team rw
31 30 0:41 / /srv/team/local rw - tmpfs tmpfs rw
32 22 0:42 / /srv/with\040blank rw - fuse.sshfs me@there:/ rw
33 22 0:43 / /srv/teamwork rw - xfs /dev/vdb rw
34 22 0:44 / /srv/twice rw - ext4 /dev/vdc rw
35 22 0:45 / /srv/twice rw - cifs //server/share rw
garbage
"""


@pytest.fixture
def long_home(tmp_path: Path) -> Home:
    return Home(tmp_path / LONG / LONG / LONG / "home")


@pytest.mark.req("OPS-03", "CLI-01")
def test_the_lock_has_one_holder_who_is_named(home: Path) -> None:
    with ServeLock.take(Home(home)) as lock:
        with pytest.raises(AlreadyServed, match=f"process {os.getpid()} is its running host already"):
            ServeLock.take(Home(home))
        lock.tell(Place(os.getpid(), home / "s"))
        assert place_of(Home(home)) == Place(os.getpid(), home / "s")
        assert stat.S_IMODE((home / LOCK_NAME).stat().st_mode) == 0o600
    assert place_of(Home(home)) is None
    with ServeLock.take(Home(home)):
        pass


@pytest.mark.req("OPS-03")
def test_what_a_killed_holder_left_is_no_hindrance(home: Path) -> None:
    home.mkdir()
    (home / LOCK_NAME).write_text('{"pid": 4194304, "socket": "/nowhere"}', encoding="utf-8")
    with ServeLock.take(Home(home)):
        assert place_of(Home(home)) == Place(os.getpid(), None)


@pytest.mark.req("SEC-03")
def test_a_lock_that_is_a_link_is_not_followed(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (home / LOCK_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BuzzError, match="cannot be opened"):
        ServeLock.take(Home(home))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.req("SEC-01")
@pytest.mark.parametrize(
    "content", [b"", b"x", b"[]", b"{}", b'{"pid": "x", "socket": null}', b'{"pid": 1}', b"\xff", b"[" * 60_000]
)
def test_a_lock_file_that_says_nothing_is_no_host(home: Path, content: bytes) -> None:
    home.mkdir()
    (home / LOCK_NAME).write_bytes(content)
    assert place_of(Home(home)) is None


@pytest.mark.req("SEC-01")
def test_the_socket_stands_in_the_home_in_a_folder_of_its_owner(home: Path) -> None:
    (home / "run").mkdir(parents=True, mode=0o777)
    path = socket_path(Home(home))
    assert path == home / "run" / "serve.sock"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.req("SEC-01", "OPS-03")
def test_a_home_of_a_long_path_has_its_socket_in_the_runtime_folder(
    long_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    path = socket_path(long_home)
    assert path.parent == runtime / "buzz"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert len(os.fsencode(path)) <= SOCKET_PATH_MAX_BYTES
    assert socket_path(Home(long_home.root.with_name("other"))) != path
    # A home that is reached through a link is the same home.
    long_home.folder()
    (tmp_path / LONG / LONG / LONG / "link-of-a-long-name-as-well").symlink_to(long_home.root)
    assert socket_path(Home(tmp_path / LONG / LONG / LONG / "link-of-a-long-name-as-well")) == path


@pytest.mark.req("SEC-01")
@pytest.mark.parametrize("runtime", ["", "relative", "/nowhere/at/all"])
def test_without_a_runtime_folder_it_is_a_private_one_below_the_temporary_one(
    long_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = socket_path(long_home)
    assert path.parent == tmp_path / f"buzz-{os.geteuid()}"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.req("SEC-01", "SEC-03")
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    linked = tmp_path / "linked"
    linked.symlink_to(theirs)
    a_file = tmp_path / "file"
    a_file.touch()
    with pytest.raises(BuzzError, match="is no folder of your own"):
        private_folder(linked)
    with pytest.raises(BuzzError, match="a folder is needed here"):
        private_folder(a_file)
    if os.geteuid() == 0:
        os.chown(theirs, 65534, 65534)
        with pytest.raises(BuzzError, match="is no folder of your own"):
            private_folder(theirs)


@pytest.mark.req("OPS-01", "OPS-03")
def test_a_home_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(HomeError, match="a folder is needed here"):
        ServeLock.take(Home(tmp_path / "file"))


@pytest.mark.req("OPS-01")
@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/srv/team/me/.buzz", "nfs4"),
        ("/srv/team", "nfs4"),
        ("/srv/team/local/x", None),
        ("/srv/teamwork/x", None),
        ("/srv/with blank/x", "fuse.sshfs"),
        ("/srv/twice/x", "cifs"),
        ("/srv/elsewhere", None),
    ],
)
def test_a_network_file_system_is_known_by_the_table_of_mounts(folder: str, kind: str | None, tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(MOUNTS, encoding="utf-8")
    assert network_file_system(Path(folder), table) == kind
    assert network_file_system(Path(folder), tmp_path / "none") is None


@pytest.mark.req("OPS-01")
def test_this_disk_is_a_local_one(tmp_path: Path) -> None:
    assert network_file_system(tmp_path) is None
