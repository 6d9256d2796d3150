"""Archives that must not be installed are refused, and not one byte of a home, or beside it, is another afterwards."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.plugins.install.archives import RATIO_FLOOR_BYTES
from buzz_host.plugins.install.listing import ENTRIES_MAX
from buzz_host.settings import Home
from tests.conftest import SOAK
from tests.host.plugins.install.making import Member, asked, everything, members, plugin, put, tar, zipped

pytestmark = pytest.mark.req("CAT-02", "SEC-03")

Refuse = Callable[[str | Path], str]
GOOD = members(plugin())

# What both kinds of archive can hold: the members beside a plugin that works, and the words of the refusal.
BOTH: dict[str, tuple[list[Member], str]] = {
    "parent": ([Member("../escape.py", b"x")], "leads out of its folder"),
    "parent-within": ([Member("a/../../escape.py", b"x")], "leads out of its folder"),
    "parent-and-back": ([Member("../honest/plugin.py", b"x")], "leads out of its folder"),
    "absolute": ([Member("/tmp/escape.py", b"x")], "is an absolute path"),
    "drive": ([Member("C:/escape.py", b"x")], "is an absolute path"),
    "backslash": ([Member("..\\escape.py", b"x")], "has a backslash in its name"),
    "link-absolute": ([Member("link", type=tarfile.SYMTYPE, target="/etc/passwd")], "is a link that leads out"),
    "link-parent": ([Member("a/link", type=tarfile.SYMTYPE, target="../../escape")], "is a link that leads out"),
    "link-to-folder": (
        [Member("deep/x.py", b"x"), Member("link", type=tarfile.SYMTYPE, target="deep")], "is a link to a folder",
    ),
    "link-nowhere": ([Member("link", type=tarfile.SYMTYPE, target="nothing")], "is a link that leads nowhere"),
    "link-loop": (
        [Member("a", type=tarfile.SYMTYPE, target="b"), Member("b", type=tarfile.SYMTYPE, target="a")],
        "is a link that leads nowhere",
    ),
    "through-a-link": (
        [Member("out", type=tarfile.SYMTYPE, target="plugin.py"), Member("out/x.py", b"x")], "which is no folder",
    ),
    "file-as-folder": ([Member("plugin.py/x.py", b"x")], "which is no folder"),
    "pipe": ([Member("pipe", type=tarfile.FIFOTYPE)], "is neither file nor folder"),
    "device": ([Member("null", type=tarfile.CHRTYPE)], "is neither file nor folder"),
    "set-user-id": ([Member("run", b"x", mode=0o4755)], "set-user-id"),
    "set-group-id": ([Member("run", b"x", mode=0o2755)], "set-group-id"),
    "case": ([Member("Plugin.py", b"x")], "differ in case"),
    "case-of-folders": ([Member("a/x.py", b"x"), Member("A/y.py", b"y")], "differ in case"),
    "normal-form": ([Member("\u00e9.py", b"x"), Member("e\u0301.py", b"y")], "differ in case"),
    "sharp-s": ([Member("straße.py", b"x"), Member("STRASSE.py", b"y")], "differ in case"),
    "twice": ([Member("x.py", b"x"), Member("./x.py", b"y")], "is there twice"),
    "control": ([Member("a\x1b[31m.py", b"x")], "invisible character in its name (U+001B)"),
    "newline": ([Member("a\nb.py", b"x")], "invisible character in its name (U+000A)"),
    "bidi": ([Member("a\u202eyp.txt", b"x")], "invisible character in its name (U+202E)"),
    "zero-width": ([Member("plugin\u200b.py", b"x")], "invisible character in its name (U+200B)"),
    "deep": ([Member("/".join(["d"] * 33 + ["x.py"]), b"x")], "is nested more than 32 deep"),
    "long-name": ([Member("n" * 300 + ".py", b"x")], "has a name of more than 255 bytes"),
    "long-path": ([Member("/".join(["n" * 200] * 6), b"x")], "is longer than 1024 bytes"),
    "many": ([Member(f"n/{number}", b"") for number in range(ENTRIES_MAX)], "has more than 20,000 entries"),
    "many-files": ([Member(f"n/{number}", b"") for number in range(4096)], "may have 4096 files at most"),
    "lfs": (
        [Member("model.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")],
        "is a Git LFS pointer",
    ),
    "bomb": ([Member("zeros", bytes(64 * 1024 * 1024 - 1000))], "unpacks to more than"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("suffix", [".tar.gz", ".zip"])
def test_what_no_archive_may_hold(kind: str, suffix: str, refused: Refuse, tmp_path: Path) -> None:
    content, words = BOTH[kind]
    make = zipped if suffix == ".zip" else tar
    assert words in refused(make(tmp_path / f"hostile{suffix}", [*GOOD, *content]))


TAR_ONLY: dict[str, tuple[list[Member], str]] = {
    "hard-link-absolute": ([Member("link", type=tarfile.LNKTYPE, target="/etc/passwd")], "is a link that leads out"),
    "hard-link-parent": ([Member("link", type=tarfile.LNKTYPE, target="../x")], "is a link that leads out"),
    "hard-link-to-link": (
        [Member("a", type=tarfile.SYMTYPE, target="/etc/passwd"), Member("b", type=tarfile.LNKTYPE, target="a")],
        "is a link that leads out",
    ),
    "empty-name": ([Member("", type=tarfile.SYMTYPE, target="x")], "no plugin, and no link"),
    "block-device": ([Member("sda", type=tarfile.BLKTYPE)], "is neither file nor folder"),
    "unknown-type": ([Member("what", type=b"Z")], "is neither file nor folder"),
    "not-utf-8": ([Member("n\udce9.py", b"x")], "is a name that is not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in TAR_ONLY if kind != "empty-name"])
def test_what_no_tar_may_hold(kind: str, refused: Refuse, tmp_path: Path) -> None:
    content, words = TAR_ONLY[kind]
    assert words in refused(tar(tmp_path / "hostile.tar", [*GOOD, *content], mode="w:"))


def test_a_link_without_a_name_leads_nowhere(home: Home, tmp_path: Path) -> None:
    archive = tar(tmp_path / "a.tgz", [*GOOD, *TAR_ONLY["empty-name"][0]])
    assert set(put(home, archive).row.files) == {"plugin.py", "plugin.toml"}
    assert not [path for path in home.root.rglob("*") if path.is_symlink()]


def test_a_sparse_file_in_a_tar(refused: Refuse, tmp_path: Path) -> None:
    path = tmp_path / "hostile.tar"
    with tarfile.open(path, "w:", format=tarfile.PAX_FORMAT) as archive:
        for each in GOOD:
            info = tarfile.TarInfo(each.name)
            info.size = len(each.content)
            archive.addfile(info, io.BytesIO(each.content))
        info = tarfile.TarInfo("sparse")
        info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.name": "sparse",
                            "GNU.sparse.size": str(1 << 40), "GNU.sparse.map": "0,1"}  # fmt: skip
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    assert "is neither file nor folder" in refused(path)


def test_a_tar_of_which_a_small_file_unpacks_without_end(refused: Refuse, tmp_path: Path) -> None:
    path = tmp_path / "hostile.tar.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        header = tarfile.TarInfo("plugin.toml")
        header.size = 1 << 34
        file.write(header.tobuf())
        for _ in range(2 * RATIO_FLOOR_BYTES // (1 << 20)):
            file.write(bytes(1 << 20))
    assert path.stat().st_size < 100_000
    assert "unpacks to more than" in refused(path)


def test_a_tar_header_that_claims_to_be_huge(refused: Refuse, tmp_path: Path) -> None:
    path = tmp_path / "hostile.tar.gz"
    with gzip.open(path, "wb") as file:
        header = tarfile.TarInfo("long")
        header.type, header.size = tarfile.XHDTYPE, 1 << 33  # a PAX header, which is read whole before it is believed
        file.write(header.tobuf(tarfile.GNU_FORMAT))
        for _ in range(2 * RATIO_FLOOR_BYTES // (1 << 20)):
            file.write(bytes(1 << 20))
    assert "unpacks to more than" in refused(path)


def test_a_zip_whose_files_overlap(refused: Refuse, tmp_path: Path) -> None:
    """Many entries of the directory share one packed file, so that a small archive holds a large tree."""
    path = zipped(tmp_path / "hostile.zip", [*GOOD, Member("kernel", random.Random(1).randbytes(200_000))])
    content = path.read_bytes()
    end = content.rindex(b"PK\x05\x06")
    count, size, start = struct.unpack("<HLL", content[end + 10 : end + 20])
    directory = content[start : start + size]
    kernel = directory[directory.rindex(b"PK\x01\x02") :]
    names = [kernel.replace(b"kernel", b"kern%02d" % number) for number in range(50)]
    fresh = directory + b"".join(names)
    total = count + len(names)
    ending = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, total, total, len(fresh), start, 0)
    path.write_bytes(content[:start] + fresh + ending)
    assert "overlap" in refused(path)


def test_a_zip_that_is_encrypted_or_packed_otherwise(refused: Refuse, tmp_path: Path) -> None:
    path = zipped(tmp_path / "lzma.zip", GOOD, compression=zipfile.ZIP_LZMA)
    assert "packed in a way that Buzz does not read" in refused(path)
    path = zipped(tmp_path / "locked.zip", GOOD)
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x01\x02", 8), (b"PK\x03\x04", 6)):
        position = content.find(signature)
        while position >= 0:
            content[position + offset] |= 1
            position = content.find(signature, position + 1)
    path.write_bytes(content)
    assert "is encrypted" in refused(path)


def test_a_zip_with_a_name_of_another_encoding(refused: Refuse, tmp_path: Path) -> None:
    path = zipped(tmp_path / "hostile.zip", [*GOOD, Member("dayXX.py", b"x")])
    path.write_bytes(path.read_bytes().replace(b"dayXX", b"day\xc3\xa9"))
    assert "is a name that is not UTF-8" in refused(path)


def test_a_zip_whose_directory_and_files_disagree(refused: Refuse, tmp_path: Path) -> None:
    path = zipped(tmp_path / "hostile.zip", [*GOOD, Member("other.py", b"x")])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"other.py", b"../up.py", 1))  # in the file's own header only
    assert "is damaged" in refused(path)


def test_a_zip_that_says_a_size_which_is_not_so(refused: Refuse, tmp_path: Path) -> None:
    path = zipped(tmp_path / "hostile.zip", [Member("plugin.py", bytes(1000)), Member("plugin.toml", b"api = 1")])
    content = path.read_bytes()
    path.write_bytes(content.replace(struct.pack("<L", 1000), struct.pack("<L", 10)))
    assert "hostile.zip" in refused(path)


@pytest.mark.parametrize("suffix", [".tar.gz", ".tgz", ".tar", ".zip"])
def test_what_is_no_archive_at_all(suffix: str, refused: Refuse, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    for content in (b"", b"plain text", b"\x1f\x8bnonsense", b"PK\x03\x04", bytes(5000)):
        path.write_bytes(content)
        assert refused(path)


def test_an_archive_that_is_cut_off_or_changed_anywhere_is_refused_or_the_same(home: Home, tmp_path: Path) -> None:
    """Nothing but a refusal comes of damage: no other error, and no other plugin than the one that was packed."""
    chance = random.Random(7)
    for make, name in ((tar, "a.tar.gz"), (zipped, "a.zip")):
        whole = make(tmp_path / name, GOOD).read_bytes()
        honest = put(home, tmp_path / name, agreed=True).row.content_hash
        for number in range(400 if SOAK else 60):
            content = bytearray(whole)
            if number % 2:
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            else:
                del content[chance.randrange(len(content)) :]
            (tmp_path / name).write_bytes(content)
            with suppress(BuzzError):
                outcome = put(home, tmp_path / name, agreed=True)
                assert outcome.row.content_hash == honest or name.endswith(".zip")


def test_a_plain_tar_that_is_changed_anywhere_raises_nothing_else(home: Home, tmp_path: Path) -> None:
    chance = random.Random(8)
    whole = tar(tmp_path / "a.tar", GOOD, mode="w:").read_bytes()
    for _ in range(2000 if SOAK else 150):
        content = bytearray(whole)
        content[chance.randrange(1600)] = chance.randrange(256)
        (tmp_path / "a.tar").write_bytes(content)
        with suppress(BuzzError):
            asked(home, tmp_path / "a.tar", agreed=True)


def test_links_within_a_plugin_become_files(home: Home, tmp_path: Path) -> None:
    more = [
        Member("docs/README.md", b"read me"),
        Member("README.md", type=tarfile.SYMTYPE, target="docs/README.md"),
        Member("docs/again.md", type=tarfile.SYMTYPE, target="../README.md"),
    ]
    hard = Member("hard.md", type=tarfile.LNKTYPE, target="docs/README.md")
    for path in (tar(tmp_path / "a.tgz", [*GOOD, *more, hard]), zipped(tmp_path / "a.zip", [*GOOD, *more])):
        row = put(home, path, agreed=True).row
        place = row.place(home)
        assert (place / "README.md").read_bytes() == (place / "docs" / "again.md").read_bytes() == b"read me"
        assert not [each for each in place.rglob("*") if each.is_symlink()]


def test_what_tools_leave_in_an_archive_is_left_out(home: Home, tmp_path: Path) -> None:
    junk = ["__pycache__/plugin.cpython-311.pyc", ".git/hooks/post-checkout", "__MACOSX/._plugin.py", ".DS_Store"]
    row = put(home, zipped(tmp_path / "a.zip", [*GOOD, *(Member(name, b"x") for name in junk)])).row
    assert set(row.files) == {"plugin.py", "plugin.toml"}
    assert set(everything(row.place(home))) == {"plugin.py", "plugin.toml"}
