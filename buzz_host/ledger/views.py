"""What an audit shows of a turn, put together again from its entries and bodies.

The text is rebuilt from the sections and is the same to the byte as what was sent; where a harness encodes, or builds
its own prompt, the exact text was kept and is given instead. A text that is gone is None, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import attrs

from buzz_author.events import Usage
from buzz_author.harness import HarnessError
from buzz_author.json_values import JsonObject
from buzz_author.sections import SECTION_SEPARATOR, section
from buzz_host.ledger.record import OWN_LABEL


@attrs.frozen
class EntryRow:
    """One entry as a query reads it."""

    seq: int
    kind: str
    at: str
    turn: str
    hash: bytes
    bodies: str
    fields: str


@attrs.frozen
class TurnRow:
    """One line of a list of turns. `status` is completed, interrupted or failed; for a steer also folded or returned;
    and `unended` where no end was recorded: it still runs, or its host was killed. `handed over` went to a person's own
    program, and what came back is not known. `plugins` are all that it names."""

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


@attrs.frozen
class SectionView:
    """One section of the text that was sent. `body` and `sha256` are None where the body is gone; `bytes` stay."""

    tag: str
    attributes: tuple[tuple[str, str], ...] | None
    body: str | None
    plugin: str | None
    id: str | None
    bytes: int
    sha256: str | None

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
    """One instruction that the turn did not carry, and why."""

    plugin: str
    id: str
    reason: str
    detail: str | None


@attrs.frozen
class FaultView:
    """What a plugin did wrong in this turn."""

    plugin: str
    phase: str
    message: str | None


@attrs.frozen
class ToolView:
    """One call of a tool. `result`, `bytes` and `is_error` are None where no result was recorded."""

    at: str
    call: str
    name: str
    plugin: str | None
    arguments: JsonObject | None
    is_error: bool | None
    bytes: int | None
    result: str | None


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


@attrs.frozen
class PluginRow:
    """What one plugin had to do with one turn: what it told, what of it was left out, its faults."""

    row: TurnRow
    told: tuple[SectionView, ...]
    left_out: tuple[LeftOutView, ...]
    faults: tuple[FaultView, ...]


def view(row: TurnRow, entries: Sequence[EntryRow], texts: Mapping[str, str], steers: tuple[TurnView, ...]) -> TurnView:
    """The turn of `row` from its `entries`, in order, the first of them the sent one; `texts` by salted digest."""
    sent = entries[0]
    fields = json.loads(sent.fields)
    sections = tuple(_section(each, texts) for each in fields["sections"])
    plugins = _text(fields["plugins"], texts)
    ended_at = reply = usage = error = outcome = None
    compacted = []
    for entry in entries[1:]:
        later = json.loads(entry.fields)
        match entry.kind:
            case "turn_ended":
                ended_at, reply = entry.at, _text(later["reply"], texts)
                usage = None if later["usage"] is None else Usage(**later["usage"])
                error = None if later["error"] is None else _error(later["error"], texts)
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
        text=_joined(sections) if fields["sent"] is None else _text(fields["sent"], texts),
        sections=sections,
        left_out=tuple(_left_out(each, texts) for each in fields["left_out"]),
        faults=tuple(_fault(each, texts) for each in fields["faults"]),
        plugins=() if plugins is None else tuple((name, loaded) for name, loaded in json.loads(plugins)),
        message_ids=tuple(fields["message_ids"]),
        tools=_tools(entries, texts),
        steers=steers,
        compacted=tuple(compacted),
        outcome=outcome,
        ended_at=ended_at,
        reply=reply,
        usage=usage,
        error=error,
        handed_over=_handed_over(fields.get("handed_over"), texts),
    )


def named_by(plugin: str, row: TurnRow, entry: EntryRow, texts: Mapping[str, str]) -> PluginRow:
    """What `plugin` had to do with the turn of `row`, from its sent entry."""
    fields = json.loads(entry.fields)

    def own(key: str) -> list[dict[str, Any]]:
        return [each for each in fields[key] if each["plugin"] == plugin]

    return PluginRow(
        row,
        tuple(_section(each, texts) for each in own("sections")),
        tuple(_left_out(each, texts) for each in own("left_out")),
        tuple(_fault(each, texts) for each in own("faults")),
    )


def _text(reference: dict[str, Any] | None, texts: Mapping[str, str]) -> str | None:
    return None if reference is None else texts.get(reference["digest"])


def _joined(sections: Sequence[SectionView]) -> str | None:
    pieces = [each.rendered for each in sections]
    known = [each for each in pieces if each is not None]
    return SECTION_SEPARATOR.join(known) if len(known) == len(pieces) else None


def _section(fields: dict[str, Any], texts: Mapping[str, str]) -> SectionView:
    body = _text(fields["text"], texts)
    return SectionView(
        tag=fields["tag"],
        attributes=_attributes(fields, texts),
        body=body,
        plugin=fields["plugin"],
        id=fields["id"],
        bytes=fields["text"]["bytes"],
        sha256=None if body is None else sha256(body.encode("utf-8")).hexdigest(),
    )


def _attributes(fields: dict[str, Any], texts: Mapping[str, str]) -> tuple[tuple[str, str], ...] | None:
    match fields["attributes"]:
        case None:
            return ()
        case str():
            return ((OWN_LABEL, fields["plugin"]),)
        case kept:
            text = _text(kept, texts)
            return None if text is None else tuple((name, value) for name, value in json.loads(text))


def _handed_over(fields: dict[str, Any] | None, texts: Mapping[str, str]) -> HandedOverView | None:
    if fields is None:
        return None
    entries = tuple(_text(each, texts) for each in fields["entries"])
    return HandedOverView(fields["by"], fields["attachment"], _text(fields["cwd"], texts), entries)


def _left_out(fields: dict[str, Any], texts: Mapping[str, str]) -> LeftOutView:
    detail = "" if fields["detail"] is None else _text(fields["detail"], texts)
    return LeftOutView(fields["plugin"], fields["id"], fields["reason"], detail)


def _fault(fields: dict[str, Any], texts: Mapping[str, str]) -> FaultView:
    return FaultView(fields["plugin"], fields["phase"], _text(fields["message"], texts))


def _error(fields: dict[str, Any], texts: Mapping[str, str]) -> HarnessError:
    native = _text(fields["native"], texts)
    return HarnessError(fields["kind"], native or "", fields["status"], fields["retryable"])


def _tools(entries: Sequence[EntryRow], texts: Mapping[str, str]) -> tuple[ToolView, ...]:
    """The calls in the order in which they began; an entry with the result completes the one without."""
    calls: dict[str, ToolView] = {}
    for entry in entries:
        if entry.kind != "tool":
            continue
        fields = json.loads(entry.fields)
        arguments = _text(fields["arguments"], texts)
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
            result=_text(fields["result"], texts),
        )
    return tuple(calls.values())
