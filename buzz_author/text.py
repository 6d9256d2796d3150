"""Making text from anybody safe to stand inside a section, and otherwise leaving it alone.

A turn is read by a model that trusts its sections, so no text may open or close one (INS-07, INS-10). These are the
pure functions that see to it; `buzz_author.sections.section` is their only caller on the way into a turn.

A *section tag* is `<` or its full-width form `＜`, then any white space, slashes and invisible characters, then one of
the closed list of names, in any case, also with invisible characters or combining marks strewn in, in compatibility
letters (full-width, mathematical) or with another dash; the name ends where a letter, digit, `-`, `_`, `.` or `:` does
not follow. What comes after the name does not matter. Letters of another script that merely look alike are not covered.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

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
_LONGEST_TAG_CHARS: Final = max(map(len, _ALL_TAGS))

# The white space and line ends that ECMAScript's `trim` removes (INS-02). Python's `strip` differs both ways: it takes
# U+001C to U+001F and U+0085, and leaves U+FEFF.
_ECMA_WHITE_SPACE: Final = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

# Characters that show nothing: controls, category Cf, the other default-ignorable ones, combining marks, and a blank
# that is no white space. Written as ranges because asking `unicodedata` for each code point would take 0.1 s; a test
# holds them against it.
_INVISIBLE: Final = (
    r"\x00-\x08\x0e-\x1f\x7f-\x9f\xad\u0300-\u036f\u0483-\u0489\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2"
    r"\u115f\u1160\u17b4\u17b5\u180b-\u180f\u1ab0-\u1aff\u1dc0-\u1dff\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u20d0-\u20ff\u2800\u3164\ufe00-\ufe0f\ufe20-\ufe2f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd"
    r"\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_SLASHES: Final = r"/\u2044\u2215\uff0f"
_DASHES: Final = r"\-\u2010-\u2015\u2212\ufe58\ufe63\uff0d"
_OPENERS: Final = ("<", "\uff1c")


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
    found = [match.start() for match in _candidate(opener).finditer(text) if _names_a_tag(match[1])]
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
    # One pattern an opener, each with a literal first character: the search then runs at the speed of memory. No
    # quantifier holds another, and no match runs past the next opener, so hostile text costs no more than its length.
    return re.compile(rf"{opener}[\s{_SLASHES}{_INVISIBLE}]*+([\w.:{_DASHES}{_INVISIBLE}]*+)")


def _names_a_tag(run: str) -> bool:
    if run.isascii() and run.isprintable():
        return len(run) <= _LONGEST_TAG_CHARS and run.lower() in _ALL_TAGS
    return _plain(run) in _ALL_TAGS


def _plain(run: str) -> str:
    """The name that a reader sees in `run`; empty when that is longer than any tag: nothing long is normalised."""
    from unicodedata import normalize

    visible = _invisible().sub("", run)
    if len(visible) > _LONGEST_TAG_CHARS:
        return ""
    dashed = _dash().sub("-", visible)
    # Normalising may bring marks to light that hide in a composed letter; a letter with a mark is the letter here.
    return _invisible().sub("", normalize("NFKD", dashed)).casefold()


@lru_cache(maxsize=1)
def _invisible() -> re.Pattern[str]:
    return re.compile(f"[{_INVISIBLE}]+")


@lru_cache(maxsize=1)
def _dash() -> re.Pattern[str]:
    return re.compile(f"[{_DASHES}]")
