"""Our hook entries in a Claude Code settings file: put in as one insertion, taken out again without a trace.

Pure text to text. `insert` adds one group to `hooks.UserPromptSubmit`, beside whatever hooks are there, and tells what
it inserted, word for word. `remove` takes that out again if it still stands there so; where somebody rewrote the file
meanwhile, it takes out the group by what it is, and the containers that we made if nobody else uses them (AUT-03).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, Literal

import attrs

from buzz_host.attach.json_text import BYTE_ORDER_MARK, Element, JsonText, JsonTextError, Member

HOOKS: Final = "hooks"
EVENT: Final = "UserPromptSubmit"
DEFAULT_INDENT: Final = "  "
# The program gives up a hook after this time; the client gives up long before (see `client.bash`).
HOOK_TIMEOUT_S: Final = 5

# The client is run through a shell that says nothing and ends well, so that a home that is gone, or a machine that lost
# its bash, is no complaint on each prompt of the person's. The path is an argument: no shell reads it as code.
SHELL: Final = "/bin/sh"
RUN_IT: Final = 'test -x "$0" && "$0" "$@" 2>/dev/null; exit 0'

# The outermost container that an insertion had to make; `none` where the list of groups was there.
Made = Literal["none", "event", "hooks", "file"]


@attrs.frozen
class HookEntries:
    """What we put into a settings file: `count` hooks that run `client` for the attachment `id`, each for its part."""

    client: str
    id: str
    count: int

    def group(self) -> dict[str, Any]:
        """The group of hooks, as JSON."""
        return {
            "hooks": [
                {
                    "type": "command",
                    "command": SHELL,
                    "args": ["-c", RUN_IT, self.client, self.id, str(part)],
                    "timeout": HOOK_TIMEOUT_S,
                }
                for part in range(1, self.count + 1)
            ]
        }

    def owns(self, hook: object) -> bool:
        """Whether `hook`, as read from a settings file, is one of ours, however many there are meant to be."""
        arguments = hook.get("args") if isinstance(hook, dict) else None
        return isinstance(arguments, list) and arguments[2:4] == [self.client, self.id]


@attrs.frozen
class Inserted:
    """A settings text with our entries in it. `inserted` was added, as one piece; `made` says what had to be made."""

    text: str
    inserted: str
    made: Made


def insert(text: str, entries: HookEntries) -> Inserted:
    """`text` with the group of `entries` behind the other groups of the event.

    Raises `JsonTextError` for a text that is no JSON object, that has `hooks` of a wrong type, or twice.
    """
    read = JsonText(text)
    group = entries.group()
    if read.empty:
        mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
        end = "" if text[len(mark) :] else "\n"
        fresh = json.dumps({HOOKS: {EVENT: [group]}}, indent=DEFAULT_INDENT, ensure_ascii=False) + end
        return Inserted(mark + fresh + text[len(mark) :], fresh, "file")
    made, opening, addition = _place(read, group)
    at, inserted = _splice(read, opening, addition)
    after = text[:at] + inserted + text[at:]
    _must_say(after, _with(read.value, group))
    return Inserted(after, inserted, made)


def count(text: str, entries: HookEntries) -> int:
    """How many of our hooks stand in `text`. Raises as `insert` does."""
    read = JsonText(text)
    return sum(entries.owns(hook) for group in _groups(read) for hook in _hooks_of(group))


def holds(text: str, entries: HookEntries) -> bool:
    """Whether exactly the group of `entries` stands in `text`, once. Raises as `insert` does."""
    read = JsonText(text)
    ours = [group for group in _groups(read) if any(entries.owns(hook) for hook in _hooks_of(group))]
    return ours == [entries.group()]


def remove(text: str, entries: HookEntries, inserted: str | None, made: Made) -> str:
    """`text` without our hooks; the same object where there are none.

    `inserted` and `made` are what `insert` told then; None and `none` where that is not known any more. Raises
    `JsonTextError` as `insert` does.
    """
    read = JsonText(text)
    if not any(entries.owns(hook) for group in _groups(read) for hook in _hooks_of(group)):
        return text
    wanted = _without(read.value, entries, made)
    if inserted and text.count(inserted) == 1:
        before, _, after = text.partition(inserted)
        exact = before + after
        if _says(exact, wanted):
            return exact
    reduced = _reduced(text, entries, made)
    _must_say(reduced, wanted)
    return reduced


def _place(read: JsonText, group: dict[str, Any]) -> tuple[Made, int, tuple[str | None, Any]]:
    """Where the group goes: what has to be made, the container that takes it, and what is put into that container."""
    root = read.root
    if read.plain[root] != "{":
        raise JsonTextError("an object is expected in it")
    hooks = _only(read, root, HOOKS)
    if hooks is None:
        return "hooks", root, (HOOKS, {EVENT: [group]})
    if read.plain[hooks.value_start] != "{":
        raise JsonTextError(f"line {read.line(hooks.start)}: `{HOOKS}` is no object")
    event = _only(read, hooks.value_start, EVENT)
    if event is None:
        return "event", hooks.value_start, (EVENT, [group])
    if read.plain[event.value_start] != "[":
        raise JsonTextError(f"line {read.line(event.start)}: `{HOOKS}.{EVENT}` is no list")
    return "none", event.value_start, (None, group)


def _only(read: JsonText, opening: int, key: str) -> Member | None:
    found = [member for member in read.members(opening) if member.key == key]
    if len(found) > 1:
        lines = " and ".join(str(read.line(member.start)) for member in found)
        raise JsonTextError(f"`{key}` stands in it twice (lines {lines}), and only the last one counts: remove one")
    return found[0] if found else None


def _splice(read: JsonText, opening: int, addition: tuple[str | None, Any]) -> tuple[int, str]:
    """Where to insert and what, so that the text keeps its own style."""
    key, value = addition
    inside: Sequence[Member | Element] = read.members(opening) if read.plain[opening] == "{" else read.elements(opening)
    starts = [each.start for each in inside]
    line_end = "\r\n" if "\r\n" in read.text else "\n"
    indent = _indent_of_line(read, opening)
    own_line = not starts or _begins_its_line(read, starts[0])
    unit = _unit(read)
    deeper = _indent_of_line(read, starts[0]) if starts and own_line else indent + unit
    spread = own_line and ("\n" in read.text or (not starts and opening == read.root))
    if spread:
        written = json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line_end + deeper)
    else:
        written = json.dumps(value, ensure_ascii=False)
    if key is not None:
        written = f"{json.dumps(key)}: {written}"
    before = line_end + deeper if spread else " "
    if not inside:
        rest = read.plain[opening + 1 : read.closing(opening)]
        # A bracket that closes on a line of its own has its line end already.
        after = "" if "\n" in rest else (line_end + indent if spread else "")
        return opening + 1, before + written + after
    last = inside[-1]
    end = last.value_end if isinstance(last, Member) else last.end
    # A comma behind the last one, which some programs allow, stays where it is and takes on what we add.
    return end, "," + before + written


def _reduced(text: str, entries: HookEntries, made: Made) -> str:
    """`text` without our hooks, taken out one by one, and without the containers that we made and nobody else uses."""
    while (span := _next_span(JsonText(text), entries)) is not None:
        text = _cut(text, *span)
    if made == "none":
        return text
    hooks = _only(read := JsonText(text), read.root, HOOKS)
    event = None if hooks is None else _only(read, hooks.value_start, EVENT)
    if hooks is None or event is None or read.elements(event.value_start):
        return text
    text = _cut(text, event.start, event.value_end)
    hooks = _only(read := JsonText(text), read.root, HOOKS)
    if made == "event" or hooks is None or read.members(hooks.value_start):
        return text
    return _cut(text, hooks.start, hooks.value_end)


def _next_span(read: JsonText, entries: HookEntries) -> tuple[int, int] | None:
    hooks = _only(read, read.root, HOOKS)
    event = None if hooks is None else _only(read, hooks.value_start, EVENT)
    if event is None:
        return None
    for group, place in zip(_groups(read), read.elements(event.value_start), strict=True):
        own = [entries.owns(hook) for hook in _hooks_of(group)]
        if own and all(own):
            return place.start, place.end
        if any(own):
            inner = _only(read, place.start, HOOKS)
            assert inner is not None
            each = read.elements(inner.value_start)[own.index(True)]
            return each.start, each.end
    return None


def _cut(text: str, start: int, end: int) -> str:
    """`text` without what stands from `start` to `end`, the white space before it, and one comma."""
    plain = JsonText(text).plain
    left = start
    while plain[left - 1] in " \t\r\n" and text[left - 1] in " \t\r\n":
        left -= 1
    if left > 0 and text[left - 1] == ",":
        return text[: left - 1] + text[end:]
    if _in_line_comment(text, plain, left):
        left = start
    comma_before = _previous(plain, left)
    if comma_before is not None:
        # A comment stands between the comma and us: both are kept apart from what goes.
        return text[:comma_before] + text[comma_before + 1 : left] + text[end:]
    after = end
    while after < len(plain) and plain[after] in " \t\r\n":
        after += 1
    if text[after : after + 1] == ",":
        return text[:left] + text[end:after] + text[after + 1 :]
    return text[:left] + text[end:]


def _previous(plain: str, at: int) -> int | None:
    at -= 1
    while at >= 0 and plain[at] in " \t\r\n":
        at -= 1
    return at if at >= 0 and plain[at] == "," else None


def _in_line_comment(text: str, plain: str, at: int) -> bool:
    """Whether the characters before `at` belong to a comment that only a line end closes."""
    if at == 0 or plain[at - 1] == text[at - 1]:
        return False
    return not text[:at].endswith("*/")


def _groups(read: JsonText) -> list[Any]:
    if read.empty:
        return []
    made, _, _ = _place(read, {})
    if made != "none":
        return []
    groups: list[Any] = read.value[HOOKS][EVENT]
    return groups


def _hooks_of(group: object) -> list[Any]:
    hooks = group.get(HOOKS) if isinstance(group, dict) else None
    return hooks if isinstance(hooks, list) else []


def _with(value: Any, group: dict[str, Any]) -> Any:
    hooks = value.get(HOOKS, {})
    return {**value, HOOKS: {**hooks, EVENT: [*hooks.get(EVENT, []), group]}}


def _without(value: Any, entries: HookEntries, made: Made) -> Any:
    groups = []
    for group in value[HOOKS][EVENT]:
        kept = [hook for hook in _hooks_of(group) if not entries.owns(hook)]
        if kept == _hooks_of(group):
            groups.append(group)
        elif kept:
            groups.append({**group, HOOKS: kept})
    hooks = {**value[HOOKS], EVENT: groups}
    if made != "none" and not groups:
        del hooks[EVENT]
    result = {**value, HOOKS: hooks}
    if made in ("hooks", "file") and not hooks:
        del result[HOOKS]
    return result


def _says(text: str, wanted: Any) -> bool:
    try:
        read = JsonText(text)
    except JsonTextError:
        return False
    return bool(read.value == wanted)


def _must_say(text: str, wanted: Any) -> None:
    """The last look before anything is written: the edit changed what it was meant to change, and nothing else."""
    if not _says(text, wanted):
        raise JsonTextError("it is laid out in a way that cannot be edited safely: edit it by hand")


def _indent_of_line(read: JsonText, at: int) -> str:
    start = read.text.rfind("\n", 0, at) + 1
    line = read.text[start:at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _begins_its_line(read: JsonText, at: int) -> bool:
    start = read.text.rfind("\n", 0, at) + 1
    return start > 0 and not read.text[start:at].strip(" \t")


def _unit(read: JsonText) -> str:
    first = next(iter(read.members(read.root)), None)
    unit = _indent_of_line(read, first.start) if first is not None and _begins_its_line(read, first.start) else ""
    return unit or DEFAULT_INDENT
