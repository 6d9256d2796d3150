"""Making text from anybody safe to stand inside a section, and otherwise leaving it alone.

A turn is read by a model that trusts its sections, so no text may open or close one (INS-07, INS-10). These are the
pure functions that see to it; `buzz_author.sections.section` is their only caller on the way into a turn.

A *section tag* is `<` or one of its compatibility forms `＜` and `﹤`, then any white space and slashes, then a name of
the closed list that no further letter, digit, `-`, `_`, `.` or `:` follows. The name counts in any case, in
compatibility letters (full-width, mathematical, circled), with accents, and with any other dash for `-`; characters
that show nothing count as absent wherever they stand. What comes after the name does not matter. Letters of another
script that merely look alike are not covered.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from unicodedata import category, normalize

# What our own turns are made of; `section()` makes these and nothing else.
OUR_TAGS: Final = frozenset(
    {
        "agent-message",
        "attention",
        "buzz-event",
        "buzz-timer",
        "context",
        "conversation-context",
        "new-message-arrived-while-you-were-working",
        "observed-message",
        "plugin-instructions",
        "plugin-memories",
        "plugin-note",
        "plugin-warnings",
        "watch-task",
    }
)
# What the programs we drive say in tags of their own (facts of Claude Code, Codex, goose and Pi), and the names that
# other hosts of the same lineage use: nobody may fake those through us either.
PROGRAM_TAGS: Final = frozenset(
    {
        "agent-instructions",
        "agents-instructions",
        "available_skills",
        "command-args",
        "command-message",
        "command-name",
        "core-memory",
        "current-time",
        "environment_context",
        "local-command-stderr",
        "local-command-stdout",
        "new-request-supersedes-previous",
        "permissions_instructions",
        "previous-request-interrupted-before-completion",
        "skill",
        "skills_instructions",
        "system-reminder",
        "task-notification",
        "thread-context",
        "total_tokens",
        "turn-context",
        "turn_aborted",
        "user-prompt-submit-hook",
        "user_instructions",
        "watch-classifier",
        "what-you-were-working-on",
        "working-directory",
    }
)

_ALL_TAGS: Final = OUR_TAGS | PROGRAM_TAGS

# The white space and line ends that ECMAScript's `trim` removes (INS-02). Python's `strip` differs both ways: it takes
# U+001C to U+001F and U+0085, and leaves U+FEFF.
_ECMA_WHITE_SPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

# What shows nothing although its category does not say so: fillers, the blank Braille pattern, and code points that are
# default-ignorable without being assigned.
_FILLERS: Final = "\u115f\u1160\u2065\u2800\u3164\uffa0"
_FILLER_RANGES: Final = (range(0xFFF0, 0xFFF9), range(0xE0000, 0xE1000))
_WHITE_CONTROLS: Final = "\t\n\v\f\r"
_SLASHES: Final = "/\u2044\u2215\uff0f"
_MINUS: Final = "\u2212"
# All that NFKC reads as `<`.
_OPENERS: Final = ("<", "\uff1c", "\ufe64")
# For character classes. Odd is everything but printable ASCII and the controls that are white space; a tag may begin
# with it, save with ideographs, Hangul syllables, and the planes beyond, which read as themselves. A region ends at the
# ASCII that can stand neither before a name nor in one, and at an opener.
_ODD: Final = r"\x00-\x08\x0e-\x1f\x7f-\U0010ffff"
_ODD_FIRST: Final = r"\x00-\x08\x0e-\x1f\x7f-\u33ff\ua000-\uabff\ud7a4-\U0001ffff\U000e0000-\U000e0fff"
_REGION: Final = r"[^!-,;-@\[-^`{-~\uff1c\ufe64]"
_AS_READ_MAX_CHARS: Final = 65_536


def exact(text: str) -> str:
    """`text` as a plain `str`; the same object when it is one.

    A subclass may answer `in`, `strip` or `encode` as it likes, and so pass a check with other words than it is sent
    with. Raises `TypeError` for what is no `str`.
    """
    if type(text) is str:
        return text
    if not isinstance(text, str):
        raise TypeError(f"expected a str, not {type(text).__name__}")
    return str.__str__(text)


def trim(text: str) -> str:
    """`text` without the white space at its ends that ECMAScript's `String.prototype.trim` removes (INS-02)."""
    return text.strip(_ECMA_WHITE_SPACE)


def well_formed(text: str) -> str:
    """`text` with each lone surrogate as U+FFFD; the same object when there is none (INS-02).

    A surrogate pair that was written as two code units becomes the character that it stands for.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def neutralise(text: str) -> str:
    """`text` in which every section tag has lost its opening character to `&lt;`; nothing else changes (INS-07).

    Returns the same object when there is nothing to break. Idempotent, and linear in the length of the text.
    """
    for opener in _OPENERS:
        if opener in text:
            text = _without_tags(text, opener)
    return text


def _without_tags(text: str, opener: str) -> str:
    # What stands after an opener is judged once a text, however often it stands there.
    judged: dict[str, bool] = {}
    found = [match.start() for match in _candidate(opener).finditer(text) if _names_a_tag(match, judged)]
    if not found:
        return text
    pieces = []
    done = 0
    for position in found:
        pieces.append(text[done:position])
        done = position + 1
    pieces.append(text[done:])
    return "&lt;".join(pieces)


@lru_cache(maxsize=len(_OPENERS))
def _candidate(opener: str) -> re.Pattern[str]:
    # One pattern an opener, each with a literal first character: the search then runs at the speed of memory, and the
    # two letters after it tell most of HTML and code from a tag. Group 1 is a name in ASCII; group 2 is there where the
    # quick look cannot judge, and holds what follows. No quantifier holds another, and no match runs past the next
    # opener, so hostile text costs no more than its length.
    first = "".join(sorted({tag[0] for tag in _ALL_TAGS}))
    second = "".join(sorted({tag[1] for tag in _ALL_TAGS}))
    shortest = min(map(len, _ALL_TAGS))
    return re.compile(
        rf"{opener}[\s/]*+(?:"
        rf"([{first}{first.upper()}](?=[{second}{second.upper()}{_ODD}])[A-Za-z0-9_.:-]*+)(?:(?=[{_ODD}])({_REGION}++))?+"
        rf"|(?=[{_ODD_FIRST}])({_REGION}{{{shortest},}}+))"
    )


def _names_a_tag(match: re.Match[str], judged: dict[str, bool]) -> bool:
    ascii_name, rest, odd = match.groups()
    if ascii_name is not None and rest is None:
        return ascii_name.lower() in _ALL_TAGS
    region: str = odd or ascii_name + rest
    verdict = judged.get(region)
    if verdict is None:
        name = _name_as_read().match(region.translate(_AS_READ))
        verdict = judged[region] = name is not None and name[1] in _ALL_TAGS
    return verdict


class _AsRead(dict[int, str]):
    """A table for `str.translate`: what a reader takes each character for, in the terms of the module's docstring.

    White space is a blank, a slash `/`, a dash `-`; the rest is its compatibility form in lower case without what shows
    nothing. Filled as characters are met, from the interpreter's own tables, so that it knows what they know.
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        plain = normalize("NFKD", character)
        if plain == character and category(character) == "Lo" and character not in _FILLERS:
            read = character  # most of what there is, and without case
        else:
            read = "".join([_one_as_read(each) for each in plain]).casefold()
        if len(self) >= _AS_READ_MAX_CHARS:
            self.clear()
        self[code] = read
        return read


def _one_as_read(character: str) -> str:
    kind = category(character)
    if character in _WHITE_CONTROLS or kind in ("Zs", "Zl", "Zp"):
        return " "
    code = ord(character)
    if kind in ("Cc", "Cf", "Mn", "Me") or character in _FILLERS or any(code in each for each in _FILLER_RANGES):
        return ""
    if character in _SLASHES:
        return "/"
    return "-" if kind == "Pd" or character == _MINUS else character


_AS_READ: Final = _AsRead()


@lru_cache(maxsize=1)
def _name_as_read() -> re.Pattern[str]:
    return re.compile(r"[ /]*+([\w.:-]*+)")
