"""What the services give survives the socket, and what comes from outside is taken only as it was asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from buzz_author.errors import PluginFault
from buzz_author.events import Usage
from buzz_author.framing import decode_line, encode_line
from buzz_author.harness import Capabilities, HarnessError, NpmProgram, Probe
from buzz_author.turns import LeftOut
from buzz_host.ledger.verify import Break
from buzz_host.ledger.views import FaultView, LeftOutView, PluginRow, SectionView, ToolView, TurnRow, TurnView
from buzz_host.plugins.linking import Linked, Removed
from buzz_host.plugins.sources import PluginSource, SettingRule
from buzz_host.services.audit import Verification
from buzz_host.services.calls import CALLS, Harnesses, LinkPlugin, ListHarnesses
from buzz_host.services.examination import Arrived, Examination
from buzz_host.services.harnesses import HarnessView
from buzz_host.services.plugins import ContributedText, PluginTroubles, PluginView, Switched
from buzz_host.services.preview_call import PreviewTurn
from buzz_host.services.program_calls import Login, Programs
from buzz_host.services.session_calls import SESSION_CALLS, OpenSession
from buzz_host.services.wire import Mismatch, structured, unstructured
from buzz_host.sessions import events
from buzz_host.sessions.turn_text import Event, Preview, SectionRow

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
FAULT = PluginFault("one", "apply", "no luck", "Traceback\n  …")
SECTION = SectionView("plugin-instructions", (("plugin", "one"),), "Be brief. 漢字", "one", "id", 16, "ab" * 32)
ROW = TurnRow(1, "t", NOW.isoformat(), "s", "main", "claude", "message", "completed", None, ("one", "two"))
TURN = TurnView(
    ROW, "ab", None, 3, False, True, False, None, (SECTION, SectionView("context", None, None, None, None, 3, None)),
    (LeftOutView("two", "*", "plugin-off", None),), (FaultView("one", "when", None),), (("one", "cd"),), ("m",),
    (ToolView("a", "call", "look", None, {"deep": [1, {"x": None}]}, None, None, None),), (), (NOW.isoformat(),),
    None, None, None, Usage(1, 2), HarnessError("overloaded", "busy", 529, True),
)  # fmt: skip
SOURCE = PluginSource(
    "one", "linked", "folder", "ab", Path("/somewhere"), None, "One", plugin_depends=("two",),
    defaults=MappingProxyType({"a": 1}), setting_rules=MappingProxyType({"a": SettingRule("number", "how many")}),
)  # fmt: skip
VIEW = PluginView(
    "one", "main", "active", "forced", "", SOURCE, ("dev",), (FAULT,), ("warning",), {"a": [1, "two"]},
    (ContributedText("id", 16, True),), ("claude",),
)  # fmt: skip
TOY = NpmProgram("@buzz/toy", "1.2.3", "@buzz/toy/bin/toy", 1, (22, 19), {"@buzz/toy": "sha512-x"})
VALUES: list[tuple[object, object]] = [
    (VIEW, PluginView),
    (PluginView("x", "main", "failed", None, "why", None), PluginView),
    ((VIEW, VIEW), tuple[PluginView, ...]),
    (PluginTroubles((FAULT,), ("w",)), PluginTroubles),
    (Switched("one", None, False, "disabled"), Switched),
    (Linked(SOURCE, Path("/srv/plugins/one"), ("w",), True), Linked),
    (Removed("one", True, Path("/kept")), Removed),
    (
        Harnesses((HarnessView("claude", "C", "claude", Capabilities(native_hooks=frozenset({"b", "a"})),
                               Probe("1", Path("/x"), None), None),), (FAULT,)),
        ListHarnesses.answer_type(),
    ),
    (
        Harnesses((HarnessView("toy", "T", "toy", Capabilities(), Probe("1"), False, "logged in", TOY),), ()),
        ListHarnesses.answer_type(),
    ),
    (Programs(Path("/srv/programs"), {"toy": TOY, "claude": None}), Programs),
    (Login("Toy", ("/bin/toy", "login"), {"HOME": "/srv"}, False), Login),
    (
        Examination("toy", "Toy", "fails", "1", Path("/x"), True, True, Arrived("user", 2, 3, True, True, True, "…"),
                    "answered", ("PATH",), 1.5, "why"),
        Examination,
    ),
    ((ROW,), tuple[TurnRow, ...]),
    (TURN, TurnView),
    ((PluginRow(ROW, (SECTION,), (), ()),), tuple[PluginRow, ...]),
    (Verification(3, None, 1), Verification),
    (Break(None, "the database", "a", "b"), Break),
    (OpenSession(here="/", rehearse=True), OpenSession),
    ("an id", str),
]  # fmt: skip
COMMON: dict[str, Any] = {"at": NOW, "session": "s", "turn": "t"}
TEXT: dict[str, Any] = {
    "agent": "main", "harness": "claude", "kind": "message", "text": "…",
    "sections": (SectionRow("context", (), "x", None, None, 1, None),),
    "left_out": (LeftOut("two", "*", "plugin-off", "why"),), "faults": (PluginFault("one", "apply", "no luck"),),
}  # fmt: skip
EVENTS: list[Event] = [
    events.TurnStarted(**COMMON, **TEXT),
    events.TextDelta(**COMMON, text="\u2028 漢"),
    events.ToolCall(**COMMON, call="c", name="look", plugin=None, arguments={"a": [1, None]}),
    events.ToolResult(**COMMON, call="c", is_error=False, bytes=3),
    events.Retrying(**COMMON, attempt=1, error=HarnessError("rate-limit", "slow", 429, True)),
    events.SteerSettled(**COMMON, steer="x", outcome="folded"),
    events.PermissionRequested(**COMMON, request="r", tool="t", plugin=None, arguments={}, read_only=None),
    events.PermissionSettled(**COMMON, request="r", decision="deny", by="deadline", reason="late"),
    events.QuestionAsked(**COMMON, request="r", questions=({"q": 1},)),
    events.Compacted(**COMMON),
    events.TurnCompleted(**COMMON, status="failed", reply="", usage=Usage(1), error=HarnessError("timeout", "late")),
    events.SessionEnded(at=NOW, session="s", turn=None, error=None),
]


def over_the_wire(value: object) -> Any:
    return decode_line(encode_line(unstructured(value))).value


def same(one: object, other: object) -> bool:
    """Equal, where an error within, which is no value to Python, is what it says of itself."""
    return one == other or repr(one) == repr(other)


@pytest.mark.req("CLI-01", "API-02")
@pytest.mark.parametrize(("value", "kind"), VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_it_went(value: object, kind: object) -> None:
    assert same(structured(over_the_wire(value), kind, "value"), value)


@pytest.mark.req("CLI-01")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event)
def test_an_event_has_the_json_that_run_prints(event: Event) -> None:
    sent = over_the_wire(event)
    assert json.dumps(sent) == json.dumps(event.as_json(), default=dict)
    back = structured(sent, Event, "event")
    assert same(back, event)
    assert type(back) is type(event)


@pytest.mark.req("CLI-01")
def test_every_event_is_tried_above() -> None:
    kinds = {each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event)}
    assert {each for each in kinds if hasattr(each, "event")} - {Preview} == {type(event) for event in EVENTS}


@pytest.mark.req("CLI-01")
def test_a_preview_comes_back_as_it_went() -> None:
    preview = Preview(**{**COMMON, "session": None, "turn": None}, **TEXT)
    assert structured(over_the_wire(preview), Preview, "value") == preview


@pytest.mark.req("SEC-01", "OPS-01")
@pytest.mark.parametrize(
    ("kind", "arguments", "said"),
    [
        (PreviewTurn, {"message": 5, "here": "/"}, "arguments.message: expected a text, found the number 5"),
        (PreviewTurn, {"here": "/"}, "arguments.message: expected a value, found nothing"),
        (PreviewTurn, {"message": "x", "here": "/", "agnet": "dev"},
         ("arguments: expected one of message, here, agent, harness, trigger, "
          "found the key 'agnet' (did you mean agent?)")),
        (PreviewTurn, {"message": "x", "here": "/", "trigger": "bus"},
         "arguments.trigger: expected \"message\" or \"steer\", found the text 'bus'"),
        (PreviewTurn, {"message": "x", "here": "/", "agent": ["dev"]},
         "arguments.agent: expected a text, found a list"),
        (LinkPlugin, {"path": None}, "arguments.path: expected a text, found null"),
        (OpenSession, {"here": "/", "rehearse": 1}, "arguments.rehearse: expected true or false, found the number 1"),
        (OpenSession, {"here": "/", "rehearse": {}}, "arguments.rehearse: expected true or false, found an object"),
        (OpenSession, {"here": "x" * 300, "model_url": True}, "arguments.model_url: expected a text, found true"),
        (ListHarnesses, {"x": 1}, "arguments: expected no key, found the key 'x'"),
    ],
)  # fmt: skip
def test_a_mismatch_says_where_what_was_expected_and_what_was_found(kind: type, arguments: object, said: str) -> None:
    with pytest.raises(Mismatch) as mismatch:
        structured(arguments, kind, "arguments")
    assert str(mismatch.value) == said


@pytest.mark.req("SEC-01")
@pytest.mark.parametrize("kind", [*CALLS.values(), *SESSION_CALLS.values()], ids=lambda kind: kind.name)
@pytest.mark.parametrize("junk", [None, 1, "x", [], {"": 0}, {"message": {}}, {"\ud800": "\x1b"}])
def test_junk_is_one_line_for_every_call(kind: type, junk: object) -> None:
    with pytest.raises(Mismatch, match=r"^arguments") as mismatch:
        structured(junk, kind, "arguments")
    assert str(mismatch.value).isprintable()
