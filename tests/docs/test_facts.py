"""Every number, list and table of the pages is held against the code: a page that says something else fails here."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

import buzz_author.events
from buzz_author.events import SteerOutcome, TurnStatus, Usage
from buzz_author.harness import Capabilities, ErrorKind, Harness, HarnessSession, Policy, SessionHost, SessionSpec
from buzz_author.instructions import INSTRUCTION_MAX_BYTES, AgentHandle
from buzz_author.names import ID_MAX_CHARS, NAME_MAX_CHARS, RESERVED_NAMES
from buzz_author.plugins import PluginContext, PluginIdentity
from buzz_author.text import OUR_TAGS, PROGRAM_TAGS, neutralise
from buzz_author.turns import LeftOut, LeftOutReason, TurnKind, TurnRendering
from buzz_host.agents.files import _BLOCK, _TOP
from buzz_host.ledger.record import AuditStatus
from buzz_host.ledger.views import SectionView
from buzz_host.plugins.activation import Limits
from buzz_host.plugins.contributions import NOTES_WAITING_MAX
from buzz_host.plugins.enablement import Reason
from buzz_host.plugins.entry_points import GROUP, MANIFEST_IMPORT_S, PLUGIN_TYPE
from buzz_host.plugins.files import FILES_MAX, TOTAL_MAX_BYTES
from buzz_host.plugins.keeper import PluginState
from buzz_host.plugins.lifecycle import ONE_SHOT_WAIT_S
from buzz_host.plugins.manifest import Manifest, Setting
from buzz_host.plugins.services import ALWAYS_THERE
from buzz_host.sessions import events
from buzz_host.settings import Home
from buzz_host.settings.buzz_toml import _AGENT_KEYS, _TOP_KEYS, Permissions
from buzz_host.turns.compose import ORDER
from buzz_host.turns.guards import LOCK_WATCHDOG_S, GuardLimits
from tests.docs.pages import code, tables
from tests.quality.tree import ROOT

DOCS = ROOT / "docs"
GUIDE = DOCS / "plugin-authoring-guide.md"
ARCHITECTURE = DOCS / "plugin-architecture.md"
TEXT = DOCS / "turn-text.md"
HARNESS = DOCS / "harness-guide.md"
AUDITING = DOCS / "auditing.md"
EVENTS = DOCS / "events.md"
SETTINGS = DOCS / "settings.md"


def first_column(page: Path, heading: str) -> list[str]:
    """The names in backticks of a table's first column, in order."""
    return [name for row in tables(page)[heading] for name in code(row[0])]


def flat(page: Path) -> str:
    """The page as one line, so that a sentence is found wherever it is broken."""
    return " ".join(page.read_text(encoding="utf-8").split())


def says(page: Path, sentence: str) -> None:
    """Assert that `page` says `sentence`, wherever its lines end."""
    assert sentence in flat(page), f"{page.name} does not say: {sentence}"


def milliseconds(seconds: float) -> str:
    """A time as the pages write it."""
    return f"{seconds * 1000:g} ms" if seconds < 1 else f"{seconds:g} s"


def public(protocol: type) -> set[str]:
    """The members of a protocol."""
    return {name for name in vars(protocol) if not name.startswith("_")}


@pytest.mark.req("INS-13")
@pytest.mark.parametrize("page", [GUIDE, ARCHITECTURE], ids=lambda page: page.name)
def test_both_guides_give_the_limit_and_no_other_number_of_that_size(page: Path) -> None:
    says(page, f"One instruction has at most {INSTRUCTION_MAX_BYTES} bytes")
    near = {int(number) for number in re.findall(r"\b(\d{4})\b(?= bytes)", page.read_text(encoding="utf-8"))}
    assert near <= {INSTRUCTION_MAX_BYTES, INSTRUCTION_MAX_BYTES + 1}


@pytest.mark.req("INS-13")
def test_the_guide_says_what_every_author_must_know() -> None:
    says(GUIDE, "**Keep it short.** The text costs tokens in every turn")
    says(GUIDE, "**Your own words.** Do not put in what others wrote")
    says(GUIDE, "**Framing, not a trust boundary.**")
    says(ARCHITECTURE, "**They are trusted code.**")


@pytest.mark.req("INS-02", "INS-13")
def test_the_error_of_a_long_text_is_the_one_that_the_guide_shows() -> None:
    from buzz_author.errors import RegistrationError
    from buzz_author.instructions import check_instructions

    with pytest.raises(RegistrationError) as raised:
        check_instructions("house-rules", None, id="tests", text="x" * (INSTRUCTION_MAX_BYTES + 1))
    assert f"\n{raised.value}\n" in GUIDE.read_text(encoding="utf-8")


@pytest.mark.req("INS-07")
def test_what_counts_as_a_section_tag_is_shown_as_it_is() -> None:
    rows = [*tables(TEXT)["text | in a section"], *tables(GUIDE)["you write | the agent reads"]]
    assert len(rows) >= 20
    for row in rows:
        (written,), (read,) = code(row[0]), code(row[1])
        assert neutralise(written) == read


@pytest.mark.req("INS-07", "INS-10")
def test_the_lists_of_tags_are_the_closed_ones() -> None:
    _, _, lists = TEXT.read_text(encoding="utf-8").partition("Tags of ours:")
    ours, _, programs = lists.partition("Tags that programs use")
    assert code(ours) == sorted(OUR_TAGS)
    assert code(programs.partition("##")[0]) == sorted(PROGRAM_TAGS)


@pytest.mark.req("TRN-01")
def test_the_order_of_sections_is_that_of_the_code() -> None:
    assert first_column(TEXT, "tag | what it holds | how often") == list(ORDER)


@pytest.mark.req("TRN-02", "TRN-03")
def test_the_functions_for_harnesses_are_those_that_there_are() -> None:
    named = [name.partition("(")[0] for name in first_column(TEXT, "function | gives")]
    assert set(named) == {name for name in public(TurnRendering) if not re.search("_", name)}


@pytest.mark.req("INS-04", "INS-14")
def test_the_times_of_guards_are_those_of_the_code() -> None:
    limits = GuardLimits()
    slow, each, together = map(milliseconds, (limits.slow_s, limits.each_s, limits.together_s))
    assert [row[0] for row in tables(GUIDE)["time | what happens"]] == [
        f"more than {slow}", f"more than {each}", f"{together} for all guards of a turn together",
    ]  # fmt: skip
    told = {row[0]: row[1] for row in tables(ARCHITECTURE)["limit | value"]}
    assert told["a guard is named as slow after"] == slow
    assert told["one guard has"].startswith(f"{each},")
    assert told["all guards of one turn have"].startswith(f"{together},")
    assert told["the watchdog for code that holds the interpreter lock"] == milliseconds(LOCK_WATCHDOG_S)
    says(GUIDE, f"After {milliseconds(LOCK_WATCHDOG_S)} a watchdog that needs no lock")
    says(AUDITING, f"took longer than {each}, or all guards of the turn had taken {together} before")


@pytest.mark.req("INS-11")
def test_the_reasons_are_those_of_the_code() -> None:
    assert tuple(first_column(AUDITING, "reason | meaning")) == get_args(LeftOutReason)
    guards = [
        name for row in tables(GUIDE)["`when` | the instructions | reason in the ledger"] for name in code(row[2])
    ]
    assert set(guards) == {reason for reason in get_args(LeftOutReason) if reason.startswith("when-")} | {"suspended"}


@pytest.mark.req("AUD-01")
def test_the_statuses_are_those_of_the_code() -> None:
    assert set(first_column(AUDITING, "status | meaning")) == set(get_args(AuditStatus))


@pytest.mark.req("AUD-03")
def test_the_entries_are_those_that_this_release_writes() -> None:
    from buzz_host.ledger.entries import EntryKind

    assert set(first_column(AUDITING, "entry | written | holds")) == set(get_args(EntryKind)) - {"erased", "pruned"}


@pytest.mark.req("PLG-02")
def test_the_states_and_deadlines_of_plugins_are_those_of_the_code() -> None:
    assert tuple(first_column(ARCHITECTURE, "state | meaning")) == get_args(PluginState)
    limits = Limits()
    told = {row[0]: row[1] for row in tables(ARCHITECTURE)["what | limit | then"]}
    assert told == {
        "importing the module": milliseconds(limits.load_s),
        "`apply(ctx)`": milliseconds(limits.activate_s),
        "clean-up": milliseconds(limits.cleanup_s),
        "plugins, in one command": milliseconds(ONE_SHOT_WAIT_S),
    }
    assert limits.load_s == limits.activate_s == limits.cleanup_s
    says(GUIDE, f"Loading, `apply` and clean-up have {limits.load_s:g} s each")
    says(GUIDE, f"`buzz run` waits {ONE_SHOT_WAIT_S:g} s for plugins")
    says(ARCHITECTURE, f"`PluginManifest`. It has {MANIFEST_IMPORT_S:g} s")


@pytest.mark.req("PLG-01")
def test_the_context_is_the_one_that_plugins_get() -> None:
    named = {
        name.removeprefix("ctx.").partition("(")[0] for name in first_column(GUIDE, "attribute of `ctx` | what it is")
    }
    assert named == public(PluginContext) == ALWAYS_THERE
    (plugin,) = [row[1] for row in tables(GUIDE)["attribute of `ctx` | what it is"] if row[0] == "`ctx.plugin`"]
    assert code(plugin) == [field.name for field in attrs.fields(PluginIdentity)]


@pytest.mark.req("INS-09")
def test_the_handle_is_the_one_that_guards_get() -> None:
    named = {name.removeprefix("agent.") for name in first_column(GUIDE, "attribute | what it is")}
    assert named | {"instructions"} == public(AgentHandle)


@pytest.mark.req("PLG-04")
def test_the_keys_of_a_manifest_are_those_that_are_read() -> None:
    fields = attrs.fields_dict(Manifest)
    rows = {code(row[0])[0]: row[1] for row in tables(GUIDE)["key | default | meaning"]}
    inert = re.search(r"do nothing yet: (.*?)\.", flat(GUIDE))
    assert inert
    assert set(rows) | set(code(inert[1])) == set(fields)
    assert not set(rows) & set(code(inert[1]))
    for name, shown in rows.items():
        default = fields[name].default
        if name == "name":
            assert default is attrs.NOTHING
        elif name == "config":
            assert shown == "none"
        else:
            assert shown == f"`{str(default).lower() if isinstance(default, bool) else _toml(default)}`"
    for field in attrs.fields(Setting):
        assert f"`{field.name}`" in flat(GUIDE)


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.mark.req("PLG-08")
def test_the_rule_for_names_is_the_one_that_is_checked() -> None:
    says(GUIDE, f"one rule: 1 to {NAME_MAX_CHARS} characters")
    says(GUIDE, f"unique within the plugin: 1 to {ID_MAX_CHARS} characters")
    says(GUIDE, "Reserved: " + ", ".join(f"`{name}`" for name in sorted(RESERVED_NAMES)) + ".")


@pytest.mark.req("PLG-04")
def test_sources_and_sizes_of_plugins_are_those_of_the_code() -> None:
    says(GUIDE, f"A folder may have {FILES_MAX} files and {TOTAL_MAX_BYTES // 1024**2} MiB")
    says(GUIDE, f"the entry-point group `{GROUP}`")
    says(GUIDE, f"this release carries `{PLUGIN_TYPE}`")
    origins = [name for row in tables(ARCHITECTURE)["place | source | where"] for name in code(row[1])]
    # What is shipped as a plugin has no source in this release.
    assert origins == ["--plugin", "dropped in", "linked", "installed", "entry point"]


@pytest.mark.req("INS-12")
def test_the_number_of_waiting_notes_is_that_of_the_code() -> None:
    says(GUIDE, f"A plugin can have {NOTES_WAITING_MAX} notes waiting")


@pytest.mark.req("REG-01")
def test_the_rules_of_enablement_stand_in_their_order() -> None:
    assert tuple(first_column(ARCHITECTURE, "rule | says | set by")) == get_args(Reason)


@pytest.mark.req("OPS-02")
def test_the_settings_and_the_home_are_those_that_are_read(tmp_path: Path) -> None:
    assert set(first_column(SETTINGS, "key | type | meaning")) == set(_TOP_KEYS)
    assert set(first_column(SETTINGS, "key of `[agents.<agent>]` | type | meaning")) == set(_AGENT_KEYS)
    home = Home(tmp_path)
    paths = {value.name for name in vars(Home) if isinstance(value := getattr(home, name, None), Path)} - {"root"}
    named = {name.rstrip("/") for name in first_column(SETTINGS, "path | what it is")}
    assert named == (paths - {tmp_path.name}) | {"attach", "leases", "run", "serve.lock"}


@pytest.mark.req("OPS-01")
def test_the_variables_and_exit_codes_are_those_of_the_code() -> None:
    from buzz_host.cli import endings
    from buzz_host.programs import places
    from harnesses.claude import program
    from harnesses.codex import program as codex

    variables = first_column(SETTINGS, "variable | meaning")
    assert variables == ["BUZZ_HOME", "NO_COLOR", places.PROGRAMS_VARIABLE, *codex.MODEL_KEYS, *program.MODEL_KEYS]
    codes = {value for name, value in vars(endings).items() if name.startswith("EXIT_")}
    assert {int(row[0]) for row in tables(SETTINGS)["code | meaning"]} == codes | {0}


@pytest.mark.req("SPC-01")
def test_the_keys_of_agent_files_are_those_that_are_read() -> None:
    named = {re.sub(r"buzz: \{(\w+): …\}", r"\1", name) for name in first_column(SETTINGS, "key | meaning")}
    assert named <= {key.removeprefix("buzz.") for key in (*_TOP, *_BLOCK)}
    policies = first_column(SETTINGS, "policy | tools of plugins | the program's own tools")
    assert {code(each)[0] if "`" in each else each for each in policies} == set(get_args(Policy))
    assert set(get_args(Permissions)) == set(get_args(Policy))


def _event_kinds() -> dict[str, list[str]]:
    """The kinds of events with their own fields, as they are in JSON."""
    found: dict[str, list[str]] = {}
    waiting = [events.Event]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        # attrs makes a class with slots anew; the one it was made from is still about.
        if "event" in vars(kind) and "__attrs_attrs__" in vars(kind):
            shared = {field.name for field in attrs.fields(events.Event)}
            found[kind.event] = [field.name for field in attrs.fields(kind) if field.name not in shared]
    return found


@pytest.mark.req("CLI-01")
def test_the_events_and_their_keys_are_those_that_are_printed() -> None:
    told = {code(row[0])[0]: code(row[1]) for row in tables(EVENTS)["event | further keys"]}
    assert told == _event_kinds()
    lists = tables(EVENTS)["key | value"]
    names = [code(row[0])[0] for row in lists]
    expected = [
        "v", "event", "at", "session", "turn",
        *(field.name for field in attrs.fields(events.SectionRow)),
        *(field.name for field in attrs.fields(LeftOut)),
        "plugin", "phase", "message",
        *(field.name for field in attrs.fields(Usage)),
        "kind", "status", "native", "retryable",
    ]  # fmt: skip
    assert names == expected
    # What the ledger has beside an event's: `changed` is printed where it is true alone.
    assert [field.name for field in attrs.fields(SectionView)] == [
        *(field.name for field in attrs.fields(events.SectionRow)), "changed",
    ]  # fmt: skip
    says(EVENTS, "there is a key `changed` as well")
    assert f"| `v` | `{events.EVENT_VERSION}` |" in EVENTS.read_text(encoding="utf-8")


@pytest.mark.req("CLI-01")
def test_the_words_in_events_are_those_of_the_code() -> None:
    assert set(first_column(EVENTS, "`outcome` | meaning")) == set(get_args(SteerOutcome))
    says(EVENTS, "`status` is " + _either(get_args(TurnStatus)))
    (kinds,) = [row[1] for row in tables(EVENTS)["key | value"] if row[0] == "`kind`" and "authentication" in row[1]]
    assert tuple(code(kinds)) == get_args(ErrorKind)
    says(EVENTS, "`kind` is `message` or `steer` in this release; `bus`, `watch` and `timer` are reserved")
    assert set(get_args(TurnKind)) == {"message", "steer", "bus", "watch", "timer"}


def _either(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words[:-1]) + f" or `{words[-1]}`"


@pytest.mark.req("AUD-02")
def test_the_keys_of_audit_commands_are_those_that_are_printed() -> None:
    from buzz_host.ledger.search import Find
    from buzz_host.ledger.views import PluginRow
    from buzz_host.services import audit

    told = [(code(row[0])[0], code(row[2])) for row in tables(AUDITING)["command | one object for each | keys"]]
    keys = dict(told)
    row: Any = _row()
    assert keys["turns"] == list(audit.row_json(row))
    assert keys["why"] == list(audit.verdict_json(audit.Verdict("p", "i", True)))
    find = Find("t", "", "", "section", None, None, None, 1, "text")
    assert keys["search"] == list(audit.find_json(find))
    says(AUDITING, "A key `changed` is there only where something is not as it was recorded")
    assert keys["plugin"] == list(audit.plugin_json(PluginRow(row, (), (), ())))


@pytest.mark.req("AUD-03")
def test_the_keys_of_verify_are_those_that_are_printed(home: Path) -> None:
    from click.testing import CliRunner

    from buzz_host.cli import buzz

    home.mkdir()
    # A head without a ledger: one break, then the end.
    (home / "ledger.head").write_text(f"1 {'0' * 64}\n", encoding="ascii")
    printed = CliRunner().invoke(buzz, ["audit", "verify", "--json"]).stdout
    rows = tables(AUDITING)["command | one object for each | keys"]
    told = [code(row[2]) for row in rows if row[0] == "`verify`"]
    for line, (event, value, *keys) in zip(printed.splitlines(), told, strict=True):
        shown = json.loads(line)
        assert [event, *keys] == list(shown)
        assert shown["event"] == value


def _row() -> object:
    from buzz_host.ledger.views import TurnRow

    return TurnRow(1, "t", "2026-01-01T00:00:00+00:00", "s", "main", "claude", "message", "completed", None, ())


@pytest.mark.req("HAR-02")
def test_the_harness_guide_has_every_member_event_and_word() -> None:
    def names(heading: str) -> set[str]:
        return {name.partition("(")[0] for name in first_column(HARNESS, heading)}

    members = tables(HARNESS)
    assert names("member | what it is") == public(Harness)
    assert names("capability | default | meaning") == {field.name for field in attrs.fields(Capabilities)}
    assert names("field | what it is") == {field.name for field in attrs.fields(SessionSpec)}
    assert names("member of a session | law") == public(HarnessSession)
    assert names("member | what it does") == public(SessionHost)
    assert names("event | says") == {kind.__name__ for kind in get_args(buzz_author.events.HarnessEvent)}
    assert names("`outcome` of a steer | meaning | then") == set(get_args(SteerOutcome))
    assert tuple(first_column(HARNESS, "kind | for")) == get_args(ErrorKind)
    defaults = Capabilities()
    for row in members["capability | default | meaning"]:
        (name,) = code(row[0])
        value = getattr(defaults, name)
        assert row[1] == (
            "empty" if value in ((), frozenset()) else f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
        )
    says(HARNESS, _either(get_args(Policy)))
