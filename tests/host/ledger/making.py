"""Records of turns as a session makes them, for the tests of the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from buzz_author.errors import PluginFault
from buzz_author.sections import Section, Source, render, section
from buzz_author.text import OUR_TAGS
from buzz_author.turns import LeftOut
from buzz_host.ledger import TurnRecord

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def instructions(plugin: str, text: str, identifier: str = "style") -> Section:
    return section("plugin-instructions", text, attributes=(("plugin", plugin),), source=Source(plugin, identifier))


def turn_record(
    number: int,
    *,
    agent: str = "main",
    session: str = "session-1",
    plugins: tuple[str, ...] = ("style-guide",),
    left_out: tuple[LeftOut, ...] = (),
    steers: str | None = None,
) -> TurnRecord:
    """Turn `number`: a context, a message, and one instruction of each plugin."""
    sections = (
        section("context", f"agent {agent}"),
        section("buzz-event", f"message {number}", attributes=(("type", "message"),)),
        *(instructions(plugin, f"what {plugin} says") for plugin in plugins),
    )
    return TurnRecord(
        turn=f"turn-{number:06d}",
        kind="message" if steers is None else "steer",
        session=session,
        agent=agent,
        harness="claude",
        at=NOON + timedelta(seconds=number),
        text=render(sections),
        sections=sections,
        left_out=left_out,
        plugins=tuple((plugin, "0" * 64) for plugin in plugins),
        steers=steers,
    )


names = st.sampled_from(["style-guide", "release-freeze", "a", "z_9"])
texts = st.text(max_size=60) | st.sampled_from(
    ['{"bytes":1,"digest":"' + "0" * 64 + '"}', '{"":0}', '"digest":""', "<plugin-note>", "\u2028", "x" * 5000]
)
sources = st.builds(Source, names, st.sampled_from(["style", "*", "note.1"]))


@st.composite
def sections(draw: st.DrawFn) -> Section:
    source = draw(st.none() | sources)
    attributes = draw(
        st.sampled_from([()] if source is None else [(), (("plugin", source.plugin),)])
        | st.lists(st.tuples(st.sampled_from(["type", "from", "plugin"]), texts), unique_by=lambda pair: pair[0]).map(
            tuple
        )
    )
    return section(draw(st.sampled_from(sorted(OUR_TAGS))), draw(texts), attributes=attributes, source=source)


reasons = st.sampled_from(["when-false", "when-raised", "plugin-off"])


@st.composite
def records(draw: st.DrawFn, number: int = 1) -> TurnRecord:
    """Any turn that a session may record, hostile texts among its parts."""
    made = tuple(draw(st.lists(sections(), max_size=6)))
    rendered = render(made)
    return TurnRecord(
        turn=f"turn-{number:06d}",
        kind="message",
        session=draw(texts),
        agent=draw(names),
        harness=draw(names),
        at=draw(st.datetimes(timezones=st.just(UTC))),
        text=draw(st.sampled_from([rendered, "\ufeffencoded " + rendered]) | texts),
        sections=made,
        model=draw(st.none() | texts),
        left_out=tuple(draw(st.lists(st.builds(LeftOut, names, names, reasons, texts), max_size=3))),
        faults=tuple(draw(st.lists(st.builds(PluginFault, names, st.just("when"), texts), max_size=2))),
        plugins=tuple(draw(st.lists(st.tuples(names, texts), max_size=3))),
        revision=draw(st.integers(0, 2**40)),
        anchored=draw(st.booleans()),
        carries_sections=draw(st.booleans()),
        message_ids=tuple(draw(st.lists(texts, max_size=2))),
    )
