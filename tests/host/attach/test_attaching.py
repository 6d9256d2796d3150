"""Attaching changes one settings file, exactly; detaching leaves it as if we had never been there."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from buzz_author.errors import BuzzError
from buzz_host.attach.attaching import NotAttached, Target, attach, detach, is_in_place
from buzz_host.attach.client import NoClient, client_program, is_client
from buzz_host.attach.registry import Places, RegistryError, attachments
from buzz_host.attach.settings_file import SettingsFile, SettingsFileError
from buzz_host.settings import Home
from tests.host.attach.conftest import hooks_of

pytestmark = pytest.mark.req("AUT-03")

ODD = '\ufeff{\r\n\t"permissions": {"allow": ["Bash(ls:*)"]}, "zzz": 1.50,\r\n\t"hooks": {"Stop": []}\r\n}'


def put(target: Target, text: str) -> bytes:
    target.file.parent.mkdir(parents=True, exist_ok=True)
    octets = text.encode("utf-8")
    target.file.write_bytes(octets)
    return octets


def everything(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files below a folder: mode and content."""
    found = [each for each in folder.rglob("*") if each.is_file()]
    return {str(each.relative_to(folder)): (each.stat().st_mode, each.read_bytes()) for each in found}


def test_a_file_that_was_there_is_the_same_to_the_byte_again(opened: Home, target: Target) -> None:
    octets = put(target, ODD)
    target.file.chmod(0o640)
    made = attach(opened, target)
    assert not made.already
    assert made.warnings == ()
    call = [str(Places(opened).client), made.attachment.id]
    assert [command[-3:] for command in hooks_of(target.file)] == [[*call, "1"], [*call, "2"]]
    assert stat.S_IMODE(target.file.stat().st_mode) == 0o640
    gone = detach(opened, target)
    assert (gone.untouched, gone.removed) == (False, ())
    assert target.file.read_bytes() == octets
    assert stat.S_IMODE(target.file.stat().st_mode) == 0o640
    assert list(target.file.parent.iterdir()) == [target.file]


def test_what_was_not_there_is_gone_again(opened: Home, target: Target, project: Path) -> None:
    attach(opened, target)
    assert everything(project) != {}
    gone = detach(opened, target)
    assert gone.removed == (target.file, target.file.parent)
    assert list(project.iterdir()) == []
    assert attachments(opened) == ()


def test_a_folder_that_somebody_uses_meanwhile_stays(opened: Home, target: Target) -> None:
    attach(opened, target)
    (target.file.parent / "skills").mkdir()
    assert detach(opened, target).removed == (target.file,)
    assert (target.file.parent / "skills").is_dir()


def test_a_file_that_we_made_and_others_use_stays_with_what_is_theirs(opened: Home, target: Target) -> None:
    attach(opened, target)
    value = json.loads(target.file.read_text(encoding="utf-8"))
    value["permissions"] = {"allow": ["Bash(ls:*)"]}
    put(target, json.dumps(value, indent=2))
    assert detach(opened, target).removed == ()
    assert json.loads(target.file.read_text(encoding="utf-8")) == {"permissions": {"allow": ["Bash(ls:*)"]}}


def test_attaching_twice_changes_nothing(opened: Home, target: Target, project: Path) -> None:
    octets = put(target, ODD)
    attach(opened, target)
    before, registry = everything(project), attachments(opened)
    changed = target.file.stat().st_mtime_ns
    assert attach(opened, target).already
    assert everything(project) == before
    assert target.file.stat().st_mtime_ns == changed
    assert attachments(opened) == registry
    detach(opened, target)
    assert target.file.read_bytes() == octets


def test_another_agent_changes_no_settings_and_other_entries_only_ours(opened: Home, target: Target) -> None:
    octets = put(target, ODD)
    attach(opened, target, agent="dev")
    before = target.file.read_bytes()
    assert not attach(opened, target, agent="main").already
    assert target.file.read_bytes() == before
    attach(opened, target, entries=4)
    (kept,) = attachments(opened)
    assert (kept.agent, kept.entries) == ("main", 4)
    assert [command[-1] for command in hooks_of(target.file)] == ["1", "2", "3", "4"]
    attach(opened, target, entries=1)
    assert [command[-1] for command in hooks_of(target.file)] == ["1"]
    detach(opened, target)
    assert target.file.read_bytes() == octets


def test_others_later_edits_stay(opened: Home, target: Target) -> None:
    put(target, ODD)
    attach(opened, target)
    edited = target.file.read_bytes().replace(b"1.50", b"2.75").replace(b'"Stop": []', b'"Stop": [{"hooks": []}]')
    target.file.write_bytes(edited)
    detach(opened, target)
    assert target.file.read_bytes() == ODD.encode().replace(b"1.50", b"2.75").replace(
        b'"Stop": []', b'"Stop": [{"hooks": []}]'
    )


def test_entries_that_somebody_removed_are_put_back_and_need_no_removing(opened: Home, target: Target) -> None:
    octets = put(target, ODD)
    made = attach(opened, target).attachment
    assert is_in_place(opened, made)
    target.file.write_bytes(octets)
    assert not is_in_place(opened, made)
    assert not attach(opened, target).already
    assert is_in_place(opened, made)
    target.file.write_bytes(octets)
    assert detach(opened, target).untouched
    assert target.file.read_bytes() == octets
    attach(opened, target)
    target.file.unlink()
    assert detach(opened, target).untouched


def test_a_link_stays_a_link(opened: Home, target: Target, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text(ODD, encoding="utf-8")
    target.file.parent.mkdir()
    target.file.symlink_to(real)
    attach(opened, target)
    assert target.file.is_symlink()
    assert len(hooks_of(real)) == 2
    detach(opened, target)
    assert target.file.is_symlink()
    assert real.read_bytes() == ODD.encode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"hooks": [', "line 1, column 12"),
        ('{"hooks": 7}', "`hooks` is no object"),
        ('{"hooks": {"UserPromptSubmit": "x"}}', "is no list"),
        ('{"hooks": {}, "hooks": {}}', "stands in it twice"),
    ],
)
def test_a_file_that_cannot_be_edited_is_one_line_and_nothing_changes(
    opened: Home, target: Target, project: Path, text: str, says: str
) -> None:
    put(target, text)
    before = everything(project)
    with pytest.raises(SettingsFileError, match=says) as raised:
        attach(opened, target)
    assert str(target.file) in str(raised.value)
    assert "\n" not in str(raised.value)
    assert everything(project) == before
    assert attachments(opened) == ()


def test_a_file_that_is_no_text_or_no_file_is_refused(opened: Home, target: Target, tmp_path: Path) -> None:
    target.file.parent.mkdir()
    target.file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(SettingsFileError, match="not UTF-8"):
        attach(opened, target)
    target.file.unlink()
    target.file.mkdir()
    with pytest.raises(SettingsFileError, match="is no file"):
        attach(opened, target)
    target.file.rmdir()
    target.file.symlink_to(tmp_path / "gone")
    with pytest.raises(SettingsFileError, match="link to nothing"):
        attach(opened, target)
    target.file.unlink()
    target.file.symlink_to(target.file)
    with pytest.raises(SettingsFileError, match="cannot be read"):
        attach(opened, target)


def test_a_read_only_file_is_left_alone(opened: Home, target: Target, project: Path) -> None:
    put(target, ODD)
    target.file.chmod(0o444)
    before = everything(project)
    with pytest.raises(SettingsFileError, match="is read-only"):
        attach(opened, target)
    assert everything(project) == before
    assert attachments(opened) == ()
    target.file.chmod(0o644)
    attach(opened, target)
    target.file.chmod(0o444)
    with pytest.raises(SettingsFileError, match="is read-only"):
        detach(opened, target)
    assert len(attachments(opened)) == 1
    target.file.chmod(0o644)
    detach(opened, target)


def test_a_folder_that_cannot_be_made_is_one_line(opened: Home, target: Target, project: Path) -> None:
    (project / ".claude").write_text("not a folder", encoding="utf-8")
    with pytest.raises(SettingsFileError):
        attach(opened, target)
    assert (project / ".claude").read_text(encoding="utf-8") == "not a folder"


def test_a_file_that_changes_while_we_look_is_not_overwritten(target: Target) -> None:
    put(target, "{}")
    read = SettingsFile.read(target.file)
    put(target, '{"other": 1}')
    with pytest.raises(SettingsFileError, match="changed by somebody else just now"):
        read.replace('{"ours": 1}')
    assert target.file.read_text(encoding="utf-8") == '{"other": 1}'
    assert list(target.file.parent.iterdir()) == [target.file]


def test_comments_are_kept_and_told_of(opened: Home, target: Target) -> None:
    octets = put(target, '{\n  // mine\n  "a": 1, /* and */\n}\n')
    made = attach(opened, target)
    assert "comments" in made.warnings[0]
    assert b"// mine" in target.file.read_bytes()
    detach(opened, target)
    assert target.file.read_bytes() == octets


def test_hooks_that_are_switched_off_are_told_of(opened: Home, target: Target) -> None:
    put(target, '{"disableAllHooks": true}')
    assert "disableAllHooks" in attach(opened, target).warnings[0]


def test_two_projects_and_the_person_have_their_own_agents(opened: Home, project: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    attach(opened, Target.of(project, user=False), agent="dev")
    attach(opened, Target.of(other, user=False))
    attach(opened, Target.of(None, user=True), agent="main")
    assert {(each.folder, each.agent) for each in attachments(opened)} == {
        (str(project), "dev"),
        (str(other), ""),
        ("", "main"),
    }
    user = tmp_path / "person" / ".claude" / "settings.json"
    assert len(hooks_of(user)) == 2
    lines = Places(opened).speakers.read_text(encoding="utf-8").split("\n")
    assert {line.partition("\t")[2] for line in lines if line} == {str(project), str(other), ""}
    detach(opened, Target.of(other, user=False))
    detach(opened, Target.of(None, user=True))
    assert not user.exists()
    assert [each.folder for each in attachments(opened)] == [str(project)]


def test_a_file_that_lost_our_entries_no_longer_speaks(opened: Home, target: Target, tmp_path: Path) -> None:
    attach(opened, target)
    target.file.unlink()
    attach(opened, Target.of(None, user=True))
    assert str(target.project) not in Places(opened).speakers.read_text(encoding="utf-8")


def test_what_is_not_attached_cannot_be_detached(opened: Home, target: Target, tmp_path: Path) -> None:
    with pytest.raises(NotAttached, match="nothing is attached here or anywhere else"):
        detach(opened, target)
    attach(opened, target)
    with pytest.raises(NotAttached, match=f"attached are: --project {target.project}"):
        detach(opened, Target.of(tmp_path, user=False))


def test_an_agent_or_a_folder_that_is_not_there_is_one_line(opened: Home, target: Target, project: Path) -> None:
    with pytest.raises(BuzzError, match="nobody"):
        attach(opened, target, agent="nobody")
    assert everything(project) == {}
    with pytest.raises(BuzzError, match="no such folder"):
        Target.of(project / "gone", user=False)
    (project / "file").touch()
    with pytest.raises(BuzzError, match="is no folder"):
        Target.of(project / "file", user=False)
    (project / "li\nne").mkdir()
    with pytest.raises(BuzzError, match="control characters"):
        Target.of(project / "li\nne", user=False)


def test_the_client_belongs_to_its_owner_alone_and_is_mended(opened: Home, target: Target) -> None:
    attach(opened, target)
    client = Places(opened).client
    assert stat.S_IMODE(client.stat().st_mode) == 0o700
    assert stat.S_IMODE(client.parent.stat().st_mode) == 0o700
    content = client.read_bytes()
    assert content.startswith(b"#!/")
    assert is_client(client)
    client.write_bytes(content + b"echo\n")
    assert not is_client(client)
    client.chmod(0o600)
    attach(opened, target)
    assert client.read_bytes() == content
    assert is_client(client)


def test_without_a_bash_that_will_do_attaching_says_so(
    opened: Home, target: Target, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(NoClient, match="needs bash"):
        attach(opened, target)
    fake = folder / "bash"
    for script, says in (
        ("echo 4 4", "5.0 or newer"),
        ("echo 5 2; echo 'No such file or directory' >&2", "/dev/tcp"),
    ):
        fake.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        fake.chmod(0o755)
        with pytest.raises(NoClient, match=says):
            attach(opened, target)
    assert everything(project) == {}


def test_a_home_whose_path_the_program_would_rewrite_is_refused(target: Target, tmp_path: Path) -> None:
    with pytest.raises(NoClient, match="use another home"):
        attach(Home(tmp_path / "${HOME}"), target)


def test_a_damaged_registry_is_one_line(opened: Home, target: Target) -> None:
    attach(opened, target)
    registry = Places(opened).registry
    for content in ("{", "[]", '{"v": 1}', '{"v": 1, "attachments": [{"id": 1}]}', '{"v": 2, "attachments": []}'):
        registry.write_text(content, encoding="utf-8")
        with pytest.raises(RegistryError) as raised:
            attachments(opened)
        assert "\n" not in str(raised.value)


def test_entries_of_a_home_that_forgot_them_are_found_again(opened: Home, target: Target) -> None:
    put(target, ODD)
    attach(opened, target)
    Places(opened).registry.unlink()
    again = attach(opened, target)
    assert len(hooks_of(target.file)) == 2
    assert again.attachment in attachments(opened)
    detach(opened, target)
    assert hooks_of(target.file) == []
    assert json.loads(target.file.read_bytes().decode("utf-8-sig"))["zzz"] == 1.5


def test_the_client_is_the_same_for_everybody() -> None:
    assert client_program(Path("/bin/bash")).partition(b"\n")[2] == client_program(Path("/x/bash")).partition(b"\n")[2]
