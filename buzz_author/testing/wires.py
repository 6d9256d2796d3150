"""What a recorded request says, whatever protocol its program speaks; read here apart from the server's own reading.

Anthropic Messages and Chat Completions have `messages`, OpenAI Responses has `input`. A message of a program's own that
carries a tool's result under the role `user` is no user's message.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from buzz_author.testing.under_test import HarnessUnderTest
    from buzz_host.rehearsal import RecordedRequest

# Paths of requests that ask a model for an answer; others list models or count tokens.
ANSWERS: Final = ("/messages", "/chat/completions", "/responses")
_TEXTS: Final = ("text", "input_text", "output_text")
_SYSTEM: Final = ("system", "developer")


def asks_a_model(request: RecordedRequest) -> bool:
    """Whether this is a request for an answer."""
    return request.path.partition("?")[0].endswith(ANSWERS)


def _items(request: RecordedRequest) -> list[dict[str, Any]]:
    body = request.body
    assert isinstance(body, dict), request.path
    items = body.get("messages", body.get("input"))
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    assert isinstance(items, list), request.path
    return items


def _texts(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    return [str(block["text"]) for block in blocks if isinstance(block, dict) and block.get("type") in _TEXTS]


def conversation(request: RecordedRequest) -> list[tuple[str, str]]:
    """Every part of the history in its order, with who said it, whatever shape it was sent in. The system's prompt at
    its beginning is none of it."""
    found: list[tuple[str, str]] = []
    begun = False
    for item in _items(request):
        role = str(item.get("role") or item.get("type"))
        begun = begun or role not in _SYSTEM
        if not begun:
            continue
        content = item.get("content")
        if isinstance(content, str):
            found.append((role, content))
        for block in content if isinstance(content, list) else []:
            text = block["text"] if block.get("type") in _TEXTS else _plain(block)
            found.append((role, str(text)))
        found += [(role, _plain(item[key])) for key in ("tool_calls", "output", "arguments") if item.get(key)]
    return found


def _plain(value: Any) -> str:
    """A part as text, without the marks that say how far a provider may cache."""
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if key != "cache_control"}
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def newest_user_texts(request: RecordedRequest) -> list[str]:
    """The texts of the newest message with the role `user` that is not only a tool's result."""
    for item in reversed(_items(request)):
        if item.get("role") == "user" and (texts := _texts(item.get("content"))):
            return texts
    return []


def end_of_newest_user_message(request: RecordedRequest, under_test: HarnessUnderTest | None = None) -> str:
    """The last text of the newest user message as recorded, without what the program itself puts behind ours."""
    texts = newest_user_texts(request)
    assert texts, "no user's text in the request"
    newest = texts[-1]
    return newest if under_test is None else without_behind(newest, under_test)


def without_behind(text: str, under_test: HarnessUnderTest) -> str:
    """`text` without what the program was said to put behind ours; that it did is checked."""
    if not under_test.behind:
        return text
    behind = re.compile(rf"(?:{under_test.behind})\Z", re.DOTALL)
    assert behind.search(text), f"the program was said to add {under_test.behind!r}, and did not: {text[-300:]!r}"
    return behind.sub("", text)


def system_texts(request: RecordedRequest) -> list[str]:
    """The texts that stand as the system's or the developer's."""
    body = request.body
    assert isinstance(body, dict)
    found = _texts(body.get("system")) + _texts(body.get("instructions"))
    for item in _items(request):
        if item.get("role") in _SYSTEM:
            found += _texts(item.get("content"))
    return found


def offered_tools(request: RecordedRequest) -> list[str]:
    """The names of the tools that the model is offered, in order; one in a namespace has its name joined to it."""
    body = request.body
    assert isinstance(body, dict)
    return list(_names(body.get("tools") or ()))


def _names(tools: Any, prefix: str = "") -> Iterator[str]:
    for each in tools:
        if isinstance(each.get("tools"), list):
            yield from _names(each["tools"], f"{each.get('name', '')}__" if each.get("name") else prefix)
        else:
            name = each.get("name") or each.get("function", {}).get("name") or each.get("type")
            yield f"{prefix}{name}"


def tool_results(request: RecordedRequest) -> list[dict[str, Any]]:
    """What tools gave back, in order, each as it stands in the request."""
    found: list[dict[str, Any]] = []
    for item in _items(request):
        if item.get("role") == "tool" or str(item.get("type", "")).endswith("_call_output"):
            found.append(item)
        elif isinstance(item.get("content"), list):
            found += [block for block in item["content"] if block.get("type") == "tool_result"]
    return found


def result_text(result: dict[str, Any], under_test: HarnessUnderTest | None = None) -> str:
    """The text of one result, whatever shape it has, without what the program itself puts before it."""
    text = "\n".join(_texts(result.get("content", result.get("output"))))
    if under_test is not None and under_test.before_results:
        return re.sub(rf"\A(?:{under_test.before_results})", "", text)
    return text


def contains_text(request: RecordedRequest, text: str) -> bool:
    """Whether a part of the history contains this text."""
    return any(text in said for _, said in conversation(request))
