"""Loading: from the bytes that were hashed, as a package of its own, without a trace anywhere else."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from textwrap import dedent
from typing import Any

import attrs
import pytest

from buzz_host.plugins.files import PluginFilesError
from buzz_host.plugins.loading import LoadedPlugin, LoadError, load, load_fault, unload
from buzz_host.plugins.sources import PluginSource
from tests.host.plugins import stage
from tests.host.plugins.making import source_of, write_plugin


def applied(loaded: LoadedPlugin) -> Any:
    return loaded.apply(None)  # type: ignore[arg-type]


@pytest.mark.req("PLG-04")
def test_two_plugins_that_each_have_utils_never_meet(tmp_path: Path) -> None:
    code = "from .utils import WHO\nfrom . import utils\ndef apply(ctx): return WHO, utils.WHO, utils.__name__"
    loaded = [
        load(source_of(write_plugin(tmp_path, name, code, utils__py=f"WHO = '{name}'"))) for name in ("one", "two")
    ]
    assert [applied(each)[:2] for each in loaded] == [("one", "one"), ("two", "two")]
    assert applied(loaded[0])[2] == f"{loaded[0].package}.utils"
    for each in loaded:
        unload(each.package)


@pytest.mark.req("PLG-04")
def test_a_folder_is_loaded_as_a_package_named_after_its_hash_and_leaves_no_trace(tmp_path: Path) -> None:
    source = source_of(write_plugin(tmp_path, "my-tool", "def apply(ctx): pass"))
    path, files = list(sys.path), sorted(tmp_path.rglob("*"))
    loaded = load(source)
    assert loaded.package == f"buzz_plugins.my_tool_{source.content_hash[:16]}"
    assert sys.modules[f"{loaded.package}.plugin"].__file__ == str(tmp_path / "my-tool" / "plugin.py")
    assert sys.path == path
    assert sorted(tmp_path.rglob("*")) == files, "nothing is written, no .pyc either"
    unload(loaded.package)
    assert not [name for name in sys.modules if name.startswith("buzz_plugins.")]
    assert not vars(sys.modules["buzz_plugins"]).keys() & {loaded.package.removeprefix("buzz_plugins.")}


@pytest.mark.req("PLG-04")
def test_what_is_loaded_is_what_was_hashed_and_never_the_disk_again(tmp_path: Path) -> None:
    code = "def apply(ctx):\n    from . import later\n    return later.WHAT"
    folder = write_plugin(tmp_path, "a", code, later__py="WHAT = 'hashed'")
    loaded = load(source_of(folder))
    (folder / "later.py").write_text("WHAT = 'changed'", encoding="utf-8")
    (folder / "new.py").write_text("", encoding="utf-8")
    assert applied(loaded) == "hashed"
    with pytest.raises(ModuleNotFoundError):
        __import__(f"{loaded.package}.new")
    unload(loaded.package)


@pytest.mark.req("PLG-04")
def test_packages_within_a_plugin_with_and_without_init(tmp_path: Path) -> None:
    folder = write_plugin(
        tmp_path, "a", "from .inner import deep\nfrom .bare.leaf import B\ndef apply(ctx): return deep.A, B"
    )
    for file, text in {
        "inner/__init__.py": "", "inner/deep.py": "from ..top import A", "top.py": "A = 1", "bare/leaf.py": "B = 2",
        "__init__.py": "C = 3",
    }.items():  # fmt: skip
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    loaded = load(source_of(folder))
    assert applied(loaded) == (1, 2)
    assert sys.modules[loaded.package or ""].C == 3
    unload(loaded.package)


@pytest.mark.req("PLG-04")
def test_the_same_revision_twice_in_one_process_is_two_packages(tmp_path: Path) -> None:
    source = source_of(
        write_plugin(tmp_path, "a", "seen = []\ndef apply(ctx):\n    seen.append(1)\n    return len(seen)")
    )
    one, two = load(source), load(source)
    assert (applied(one), applied(one), applied(two)) == (1, 2, 1)
    unload(one.package)
    assert applied(two) == 2
    unload(two.package)


@pytest.mark.req("PLG-04")
def test_a_single_file_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes_1.py"
    file.write_text("from . import sibling\ndef apply(ctx): return __file__", encoding="utf-8")
    (tmp_path / "sibling.py").write_text("", encoding="utf-8")
    with pytest.raises(ImportError):
        load(source_of(file))
    file.write_text("def apply(ctx): return __file__", encoding="utf-8")
    loaded = load(source_of(file))
    assert applied(loaded) == str(file)
    unload(loaded.package)


@pytest.mark.req("PLG-04")
def test_a_traceback_names_the_real_file_and_its_line(tmp_path: Path) -> None:
    source = source_of(write_plugin(tmp_path, "a", "def apply(ctx):\n    raise KeyError('lost')"))
    loaded = load(source)
    with pytest.raises(KeyError) as caught:
        applied(loaded)
    assert f'File "{tmp_path}/a/plugin.py", line 2, in apply' in "".join(traceback.format_exception(caught.value))
    assert "raise KeyError('lost')" in load_fault(source, "apply", caught.value).traceback
    unload(loaded.package)


@pytest.mark.req("PLG-04")
def test_files_beside_the_code_can_be_read(tmp_path: Path) -> None:
    code = """
        import importlib.resources, pkgutil
        def apply(ctx):
            package = __package__
            return (
                pkgutil.get_data(__name__, "style.md"),
                (importlib.resources.files(package) / "style.md").read_text(encoding="utf-8"),
            )
    """
    loaded = load(source_of(write_plugin(tmp_path, "a", code, style__md="short")))
    assert applied(loaded) == (b"short", "short")
    unload(loaded.package)


def fault_of(source: PluginSource) -> str:
    try:
        loaded = load(source)
        try:
            applied(loaded)
        finally:
            unload(loaded.package)
    except BaseException as error:
        fault = load_fault(source, "load", error)
        assert "\n" not in fault.message
        return fault.message
    raise AssertionError("it was loaded")


@pytest.mark.req("PLG-01", "PLG-04")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1", "{place}: a plugin needs a function apply(ctx), and this has none"),
        ("apply = 5", "{place}: apply: expected a function of ctx, found int"),
        (
            "inject = 'agents'\ndef apply(ctx): pass",
            "{place}: inject: expected a list of names, found a text: write inject = ['agents']",
        ),
        ("inject = 5\ndef apply(ctx): pass", "{place}: inject: expected a list of names, found int"),
        ("inject = ['a', 3]\ndef apply(ctx): pass", "{place}: inject: expected the name of a service, found 3"),
        ("inject = ['a\\nb']\ndef apply(ctx): pass", "{place}: inject: expected the name of a service, found 'a\\nb'"),
        ("def apply(ctx)\n    pass", "{place}:1: SyntaxError: expected ':'"),
        ("import utils\ndef apply(ctx): pass", "a plugin reaches its own files by relative imports only"),
        ("def apply(ctx):\n    import utils.inner", "write `from . import utils`"),
        ("import no_such_library\ndef apply(ctx): pass", "ModuleNotFoundError: No module named 'no_such_library'"),
        ("from . import nothing\ndef apply(ctx): pass", "ImportError: cannot import name 'nothing'"),
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_code_is_one_line(tmp_path: Path, code: str, message: str) -> None:
    source = source_of(write_plugin(tmp_path, "a", code, utils__py=""))
    assert message.replace("{place}", str(tmp_path / "a" / "plugin.py")) in fault_of(source)


@pytest.mark.req("PLG-04")
def test_a_null_byte_or_a_broken_encoding_is_one_line(tmp_path: Path) -> None:
    for content in (b"a = '\0'", b"# coding: nonsense\n", b"a = '\xff'"):
        folder = write_plugin(tmp_path, "a", "")
        (folder / "plugin.py").write_bytes(content)
        assert fault_of(source_of(folder))


@pytest.mark.req("PLG-04")
@pytest.mark.parametrize("form", ["folder", "file"])
def test_a_plugin_that_disappears_between_scan_and_load_is_a_line(tmp_path: Path, form: str) -> None:
    if form == "folder":
        place = write_plugin(tmp_path, "a", "def apply(ctx): pass")
        source = source_of(place)
        place.rename(tmp_path / "elsewhere")
    else:
        place = tmp_path / "a.py"
        place.write_text("def apply(ctx): pass", encoding="utf-8")
        source = source_of(place)
        place.unlink()
    assert fault_of(source) == f"{place}: was there when plugins were looked for, and is gone now"


@pytest.mark.req("PLG-04")
def test_a_plugin_that_changes_between_scan_and_load_is_a_line(tmp_path: Path) -> None:
    place = write_plugin(tmp_path, "a", "def apply(ctx): pass")
    source = source_of(place)
    (place / "plugin.py").write_text("raise ValueError", encoding="utf-8")
    with pytest.raises(PluginFilesError, match="was changed while it was being loaded"):
        load(source)


@pytest.mark.req("PLG-04")
def test_a_module_is_imported_in_the_ordinary_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_a_test.py").write_text(
        dedent("""
            inject = {"agents"}
            def apply(ctx): return "module"
            class Thing:
                def apply(self, ctx): return "class"
            class Holder:
                thing = Thing()
            """),
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    source = PluginSource("a", "entry point", "module", "0", import_path="module_of_a_test")
    loaded = load(source)
    assert (applied(loaded), loaded.inject, loaded.package) == ("module", ("agents",), None)
    unload(loaded.package)
    assert applied(load(attrs.evolve(source, import_path="module_of_a_test:Thing"))) == "class"
    assert applied(load(attrs.evolve(source, import_path="module_of_a_test:Holder.thing"))) == "class"
    with pytest.raises(LoadError, match="the module module_of_a_test has no Nothing"):
        load(attrs.evolve(source, import_path="module_of_a_test:Nothing"))
    del sys.modules["module_of_a_test"]


@pytest.mark.req("PLG-01")
def test_what_fails_while_it_is_imported_leaves_nothing_behind(tmp_path: Path) -> None:
    source = source_of(write_plugin(tmp_path, "a", "from . import b\nraise ValueError", b__py=""))
    with pytest.raises(ValueError):
        load(source)
    assert not [name for name in sys.modules if name.startswith("buzz_plugins.")]


@pytest.mark.req("PLG-04")
def test_the_code_runs_with_its_own_future_flags_only(tmp_path: Path) -> None:
    source = source_of(write_plugin(tmp_path, "a", "def f(x: 1 + 1): pass\ndef apply(ctx): return f.__annotations__"))
    loaded = load(source)
    assert applied(loaded) == {"x": 2}
    unload(loaded.package)
    assert os.fspath(tmp_path) not in sys.path
    assert stage.said == []
