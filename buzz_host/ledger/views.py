"""What an audit shows of a turn, put together again from its entries and bodies.

The text is rebuilt from the sections and is the same to the byte as what was sent; where a harness encodes, or builds
its own prompt, the exact text was kept and is given instead. A text that is gone, or that is not the one that was
recorded, is None, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from buzz_author.events import Usage
from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonObject
from buzz_author.sections import SECTION_SEPARATOR, section
from buzz_host.ledger.reading import EntryRow, Lost, lost_texts
from buzz_host.ledger.record import OWN_LABEL, SETTLED, index_row

_WORDS: Final[Mapping[Lost, str]] = {"changed": "was changed since it was recorded", "gone": "is gone"}


@attrs.frozen
class TurnRow:
    """One line of a list of turns. `status` is completed, interrupted or failed; for a steer also folded or returned;
    and `unended` where no end was recorded: it still runs, or its host was killed. `handed over` went to a person's own
    program, and what came back is not known. `plugins` are all that it names. `changed` says that the entry, or the
    index that it was found by, is not as it was recorded: then none of this can be relied on."""

    seq: int
    turn: str
    at: str
    session: str
    agent: str
    harness: str
    kind: str
    status: str
    steers: str | None
    plugins: tuple[str, ...]
    changed: bool = False


@attrs.frozen
class SectionView:
    """One section of the text that was sent. `body` and `sha256` are None where the body is gone; `bytes` stay.

    `changed` says that the text was changed since it was recorded: `body`, or `attributes`, is None then, and `sha256`
    the one that was recorded.
    """

    tag: str
    attributes: tuple[tuple[str, str], ...] | None
    body: str | None
    plugin: str | None
    id: str | None
    bytes: int
    sha256: str | None
    changed: bool = False

    @property
    def rendered(self) -> str | None:
        """The section as it stood in the text; None where a part of it is gone."""
        if self.body is None or self.attributes is None:
            return None
        # Only the labels are rendered anew; the body is put in as it was kept, whatever today's rules would make of it.
        empty = section(self.tag, "", attributes=self.attributes).rendered
        closing = f"\n</{self.tag}>"
        return empty.removesuffix(f"\n{closing}") + f"\n{self.body}{closing}"


@attrs.frozen
class LeftOutView:
    """One instruction that the turn did not carry, and why. `detail` is None where it is lost, `changed` since it was
    recorded or gone."""

    plugin: str
    id: str
    reason: str
    detail: str | None
    changed: bool = False


@attrs.frozen
class FaultView:
    """What a plugin did wrong in this turn. `message` is None where it is lost, `changed` since it was recorded or
    gone."""

    plugin: str
    phase: str
    message: str | None
    changed: bool = False


@attrs.frozen
class ToolView:
    """One call of a tool. `result`, `bytes` and `is_error` are None where no result was recorded. `changed` says that a
    text of it was changed since it was recorded, which is None then."""

    at: str
    call: str
    name: str
    plugin: str | None
    arguments: JsonObject | None
    is_error: bool | None
    bytes: int | None
    result: str | None
    changed: bool = False


@attrs.frozen
class HandedOverView:
    """How a turn went to a person's own program: by the `host`, or by the `client` of its hook while no host ran; for
    which attachment and folder; and the text of each entry of the hook. A text that is gone is None (AUT-03)."""

    by: str
    attachment: str
    cwd: str | None
    entries: tuple[str | None, ...]


@attrs.frozen
class TurnView:
    """One turn, whole, as it stands in the ledger. `row` has its labels and status.

    `text` is exactly what was sent. `encoded` says that it is not what the sections render to, `carries_sections` false
    that the harness builds its own prompt. `outcome` is a steer's own; `steers` are the messages that joined this turn.
    `changed` names, a line each, what of it is not as it was recorded; empty where all is. `reply_changed` says so of
    the reply, which is None then.
    """

    row: TurnRow
    hash: str
    model: str | None
    revision: int
    anchored: bool
    carries_sections: bool
    encoded: bool
    text: str | None
    sections: tuple[SectionView, ...]
    left_out: tuple[LeftOutView, ...]
    faults: tuple[FaultView, ...]
    plugins: tuple[tuple[str, str], ...]
    message_ids: tuple[str, ...]
    tools: tuple[ToolView, ...]
    steers: tuple[TurnView, ...]
    compacted: tuple[str, ...]
    outcome: str | None
    ended_at: str | None
    reply: str | None
    usage: Usage | None
    error: HarnessError | None
    handed_over: HandedOverView | None = None
    changed: tuple[str, ...] = ()
    reply_changed: bool = False


@attrs.frozen
class PluginRow:
    """What one plugin had to do with one turn: what it told, what of it was left out, its faults. `changed` names, a
    line each, what of this is not as it was recorded."""

    row: TurnRow
    told: tuple[SectionView, ...]
    left_out: tuple[LeftOutView, ...]
    faults: tuple[FaultView, ...]
    changed: tuple[str, ...] = ()


def attested(row: TurnRow, entries: Sequence[EntryRow]) -> TurnRow:
    """`row`, read from the index, held against its `entries`: the sent one, then at least those that may end the turn.

    The labels are those of the sent entry where that is what was recorded, since the index vouches for nothing.
    """
    sent = entries[0]
    try:
        says = index_row(sent.fields)
        status = says.open_status
        for entry in entries[1:]:
            if entry.kind == "turn_ended":
                status = json.loads(entry.fields)["status"]
            elif entry.kind == "steer_settled" and (outcome := json.loads(entry.fields)["outcome"]) in SETTLED:
                status = outcome
    except (ValueError, LookupError, TypeError):
        # Somebody who changes an entry may leave fields that no version of ours wrote.
        return attrs.evolve(row, changed=True)
    recorded = TurnRow(
        seq=row.seq,
        turn=sent.turn,
        at=sent.at,
        session=says.session,
        agent=says.agent,
        harness=says.harness,
        kind=says.kind,
        status=status,
        steers=says.steers,
        plugins=says.plugins,
    )
    if row == recorded and all(each.intact for each in entries):
        return row
    return attrs.evolve(recorded if sent.intact else row, changed=True)


def view(row: TurnRow, entries: Sequence[EntryRow], steers: tuple[TurnView, ...]) -> TurnView:
    """The turn of `row`, as it is `attested`, from its `entries`, in order, the first of them the sent one."""
    sent = entries[0]
    fields = json.loads(sent.fields)
    sections = tuple(_section(each, sent) for each in fields["sections"])
    plugins = sent.text(fields["plugins"])
    reply_changed = False
    ended_at = reply = usage = error = outcome = None
    compacted = []
    for entry in entries[1:]:
        later = json.loads(entry.fields)
        match entry.kind:
            case "turn_ended":
                ended_at, reply = entry.at, entry.text(later["reply"])
                reply_changed = entry.lost(later["reply"]) == "changed"
                usage = None if later["usage"] is None else Usage(**later["usage"])
                error = None if later["error"] is None else _error(later["error"], entry)
            case "steer_settled":
                outcome = later["outcome"]
            case "compacted":
                compacted.append(entry.at)
    return TurnView(
        row=row,
        hash=sent.hash.hex(),
        model=fields["model"],
        revision=fields["revision"],
        anchored=fields["anchored"],
        carries_sections=fields["carries_sections"],
        encoded=fields["sent"] is not None,
        text=_joined(sections) if fields["sent"] is None else sent.text(fields["sent"]),
        sections=sections,
        left_out=tuple(_left_out(each, sent) for each in fields["left_out"]),
        faults=tuple(_fault(each, sent) for each in fields["faults"]),
        plugins=() if plugins is None else tuple((name, loaded) for name, loaded in json.loads(plugins)),
        message_ids=tuple(fields["message_ids"]),
        tools=_tools(entries),
        steers=steers,
        compacted=tuple(compacted),
        outcome=outcome,
        ended_at=ended_at,
        reply=reply,
        usage=usage,
        error=error,
        handed_over=_handed_over(fields.get("handed_over"), sent),
        changed=tuple(_changed(row, entries)),
        reply_changed=reply_changed,
    )


def named_by(plugin: str, row: TurnRow, entry: EntryRow) -> PluginRow:
    """What `plugin` had to do with the turn of `row`, as it is `attested`, from its sent entry."""
    fields = json.loads(entry.fields)

    def own(key: str) -> list[dict[str, Any]]:
        return [each for each in fields[key] if each["plugin"] == plugin]

    return PluginRow(
        row,
        tuple(_section(each, entry) for each in own("sections")),
        tuple(_left_out(each, entry) for each in own("left_out")),
        tuple(_fault(each, entry) for each in own("faults")),
        tuple(_changed(row, [entry], plugin)),
    )


def _changed(row: TurnRow, entries: Sequence[EntryRow], plugin: str | None = None) -> Iterator[str]:
    """What is not as it was recorded, a line each; of the texts, those of `plugin` where that is given."""
    altered = [each for each in entries if not each.intact]
    for entry in altered:
        yield f"entry {entry.seq} ({entry.kind}) was changed since it was recorded, so none of its texts is shown"
    if row.changed and not altered:
        yield "the index of turns says something else than the entries do"
    for entry in entries:
        if entry.intact:
            for place, lost, holder in lost_texts(entry):
                if plugin is None or holder.get("plugin") == plugin:
                    yield f"entry {entry.seq} ({entry.kind}): the text {place} {_WORDS[lost]}"


def _joined(sections: Sequence[SectionView]) -> str | None:
    pieces = [each.rendered for each in sections]
    known = [each for each in pieces if each is not None]
    return SECTION_SEPARATOR.join(known) if len(known) == len(pieces) else None


def _section(fields: dict[str, Any], entry: EntryRow) -> SectionView:
    kept = entry.kept(fields["text"])
    attributes = _attributes(fields, entry)
    return SectionView(
        tag=fields["tag"],
        attributes=attributes,
        body=kept.text,
        plugin=fields["plugin"],
        id=fields["id"],
        bytes=fields["text"]["bytes"],
        sha256=kept.sha256,
        changed=kept.lost == "changed" or (attributes is None and entry.lost(fields["attributes"]) == "changed"),
    )


def _attributes(fields: dict[str, Any], entry: EntryRow) -> tuple[tuple[str, str], ...] | None:
    match fields["attributes"]:
        case None:
            return ()
        case str():
            return ((OWN_LABEL, fields["plugin"]),)
        case kept:
            text = entry.text(kept)
            return None if text is None else tuple((name, value) for name, value in json.loads(text))


def _handed_over(fields: dict[str, Any] | None, entry: EntryRow) -> HandedOverView | None:
    if fields is None:
        return None
    entries = tuple(entry.text(each) for each in fields["entries"])
    return HandedOverView(fields["by"], fields["attachment"], entry.text(fields["cwd"]), entries)


def _left_out(fields: dict[str, Any], entry: EntryRow) -> LeftOutView:
    kept = fields["detail"]
    detail = "" if kept is None else entry.text(kept)
    return LeftOutView(fields["plugin"], fields["id"], fields["reason"], detail, entry.lost(kept) == "changed")


def _fault(fields: dict[str, Any], entry: EntryRow) -> FaultView:
    kept = entry.kept(fields["message"])
    return FaultView(fields["plugin"], fields["phase"], kept.text, kept.lost == "changed")


def _error(fields: dict[str, Any], entry: EntryRow) -> HarnessError:
    kept = entry.kept(fields["native"])
    # The value has no place for a text that is lost.
    native = f"(this text {_WORDS[kept.lost]})" if kept.lost is not None else kept.text
    return HarnessError(fields["kind"], native or "", fields["status"], fields["retryable"])


def _tools(entries: Sequence[EntryRow]) -> tuple[ToolView, ...]:
    """The calls in the order in which they began; an entry with the result completes the one without."""
    calls: dict[str, ToolView] = {}
    for entry in entries:
        if entry.kind != "tool":
            continue
        fields = json.loads(entry.fields)
        arguments = entry.text(fields["arguments"])
        returned = fields["result"] is not None
        began = calls.get(fields["call"])
        calls[fields["call"]] = ToolView(
            at=entry.at if began is None else began.at,
            call=fields["call"],
            name=fields["name"],
            plugin=fields["plugin"],
            arguments=None if arguments is None else json.loads(arguments),
            is_error=fields["is_error"] if returned else None,
            bytes=fields["result"]["bytes"] if returned else None,
            result=entry.text(fields["result"]),
            changed="changed" in (entry.lost(fields["arguments"]), entry.lost(fields["result"])),
        )
    return tuple(calls.values())
