"""`plugin.toml`: what it may say, and one line for each thing that is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buzz_author.names import RESERVED_NAMES
from buzz_host.plugins.manifest import MANIFEST_MAX_BYTES, Manifest, ManifestError, key_line, parse_manifest

FILE = Path("/plugins/a/plugin.toml")


def parsed(text: str | bytes, folder: str = "a") -> tuple[Manifest, tuple[str, ...]]:
    return parse_manifest(text if isinstance(text, bytes) else text.encode(), FILE, folder)


@pytest.mark.req("PLG-04")
def test_all_that_a_manifest_can_say() -> None:
    manifest, warnings = parsed("""
        api = 1
        name = "a"
        version = "1.2.3"
        description = "what it is for"
        author = "somebody"
        isolation = "host"
        enabled_by_default = false
        plugin_depends = ["b"]
        needs = ["network"]
        hook_timeout_secs = 5

        [hooks]
        ingest = "ingest.py"
        runtime = "python"

        [env]
        TOKEN = "${TOKEN}"

        [config.limit]
        type = "number"
        default = 3
        description = "how many"

        [config.names]
        default = ["x", {y = 1}]

        [integrity]
        "plugin.py" = "00ff"

        [[requires]]
        binary = "git"
        install_hint = "apt install git"

        [grants]
        network = true

        [i18n.de]
        name = "Ah"
    """)
    assert warnings == ()
    assert (manifest.name, manifest.version, manifest.enabled_by_default) == ("a", "1.2.3", False)
    assert (manifest.plugin_depends, manifest.needs, manifest.hook_timeout_secs) == (("b",), ("network",), 5.0)
    assert dict(manifest.defaults) == {"limit": 3, "names": ("x", {"y": 1})}
    assert manifest.setting_rules["limit"].description == "how many"
    assert [each.binary for each in manifest.requires] == ["git"]
    assert manifest.i18n["de"].name == "Ah"
    with pytest.raises(TypeError):
        manifest.defaults["limit"] = 4  # type: ignore[index]


@pytest.mark.req("PLG-04")
def test_a_name_is_enough() -> None:
    manifest, warnings = parsed('name = "a"')
    assert (manifest.api, manifest.isolation, manifest.enabled_by_default) == (1, "host", True)
    assert warnings == ()


@pytest.mark.req("PLG-04", "PLG-08")
@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "name: expected a text, found nothing", None),
        ("name = 5", "name: expected a text, found the number 5", 1),
        ('api = 2\nname = "a"', "api: expected 1, found 2: this plugin is made for another version of Buzz", 1),
        ('name = "a"\napi = true', "api: expected a whole number, found true", 2),
        ('name = "b"', "name: expected 'a', the name of its folder, found 'b': rename one of them", 1),
        ('name = "a"\nversion = 1.0', "version: expected a text, found the number 1.0", 2),
        ('name = "a"\nenabled_by_default = "no"', 'enabled_by_default: expected true or false, found the text "no"', 2),
        ('name = "a"\nneeds = "x"', 'needs: expected a list, found the text "x"', 2),
        ('name = "a"\nneeds = ["x", 1]', "needs[1]: expected a text, found the number 1", 2),
        ('name = "a"\nisolation = "vm"', 'isolation: expected "host" or "process", found the text "vm"', 2),
        ('name = "a"\n[config]\nx = 5', "config.x: expected a table, found the number 5", 3),
        (
            'name = "a"\n[config.x]\ntype = "int"',
            'config.x.type: expected "string" or "number" or "boolean", found the text "int"',
            3,
        ),
        (
            'name = "a"\n[config.x]\ntype = "number"\n\ndefault = "3"',
            'config.x.default: expected a number, found the text "3"',
            5,
        ),
        (
            'name = "a"\n[config.x]\ntype = "number"\ndefault = true',
            "config.x.default: expected a number, found true",
            4,
        ),
        ('name = "a"\n[[requires]]\nbinary = "x"\n[[requires]]\nbinary = 1',
         "requires[1].binary: expected a text, found the number 1", 5),
        ('name = "a"\nrequires = 3', "requires: expected a list, found the number 3", 2),
        ('name = "a"\nhooks = 3', "hooks: expected a table, found the number 3", 2),
        ('name = "a"\n[env]\nA = 1', "env.A: expected a text, found the number 1", 3),
        ('name = "a"\n[config.x]\ndefault = 2020-01-01',
         "config.x.default: expected a text, number, true, false, list or table, found a date or time", 3),
        ('name = "a"\nhook_timeout_secs = 0', "hook_timeout_secs: expected a positive number of seconds, found 0", 2),
        ('name = "a"\nhook_timeout_secs = nan',
         "hook_timeout_secs: expected a positive number of seconds, found nan", 2),
        ('name = "a"\nx = [', "line 2, column 6: Invalid value", 2),
        ('name = "a"\nname = "b"', "line 2, column 11: Cannot overwrite a value", 2),
        (b'name = "a"\n# \xff', "line 2: is not UTF-8 (byte 13): save it as UTF-8", 2),
        ("a" * (MANIFEST_MAX_BYTES + 1), "has 262145 bytes, the limit is 262144", None),
        ("a = " + "[" * 4000, "its values are nested too deeply", None),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_with_file_and_place(text: str | bytes, message: str, line: int | None) -> None:
    with pytest.raises(ManifestError) as caught:
        parsed(text)
    told = line is not None and not message.startswith("line ")  # those name line and column themselves
    assert str(caught.value) == (f"{FILE}:{line}: {message}" if told else f"{FILE}: {message}")
    assert (caught.value.file, caught.value.line) == (FILE, line)


@pytest.mark.req("PLG-04")
def test_a_plugin_that_asks_for_more_protection_than_there_is_does_not_run() -> None:
    with pytest.raises(
        ManifestError, match=r'isolation: this version of Buzz runs plugins with isolation = "host" only'
    ):
        parsed('name = "a"\nisolation = "process"')


@pytest.mark.req("PLG-08", "SEC-03")
@pytest.mark.parametrize(
    "name",
    ["A", "a b", "a/b", "../a", "a\\u0000", 'a\\"b', "a\\nb", "é", "-a", "_a", "", "a" * 65, *sorted(RESERVED_NAMES)],
)
def test_names_that_are_not_allowed(name: str) -> None:
    folder = name.encode().decode("unicode_escape")
    with pytest.raises(ManifestError) as caught:
        parsed(f'name = "{name}"', folder)
    assert "\n" not in str(caught.value)
    assert "is not allowed" in str(caught.value) or "is reserved" in str(caught.value)


@pytest.mark.req("PLG-04")
def test_unknown_keys_warn_with_a_suggestion() -> None:
    _, warnings = parsed("""
        name = "a"
        verison = "1"
        [config.x]
        desc = "y"
        [[requires]]
        binary = "y"
        hint = "z"
        [i18n.de]
        title = "w"
    """)
    assert warnings == (
        f"{FILE}: verison: this key is not known; did you mean version?",
        f"{FILE}: config.x.desc: this key is not known; the keys here are default, description, type",
        f"{FILE}: i18n.de.title: this key is not known; the keys here are description, name",
        f"{FILE}: requires[0].hint: this key is not known; the keys here are binary, install_hint",
    )


@pytest.mark.req("PLG-04")
def test_a_byte_order_mark_is_no_fault() -> None:
    assert parsed(b'\xef\xbb\xbfname = "a"')[0].name == "a"


@pytest.mark.req("PLG-04")
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_manifest_or_one_line(content: bytes) -> None:
    for prefix in (b"", b'name = "a"\n'):
        try:
            parsed(prefix + content)
        except ManifestError as error:
            message = str(error)
        else:
            continue
        assert message.startswith(f"{FILE}: ")
        assert "\n" not in message


@pytest.mark.req("PLG-04")
@given(st.text(max_size=80), st.text(max_size=20))
def test_looking_for_a_line_never_fails(text: str, key: str) -> None:
    line = key_line(text, key)
    assert line is None or 1 <= line <= text.count("\n") + 1
