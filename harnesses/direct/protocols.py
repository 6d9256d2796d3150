"""The two protocols of OpenAI-compatible endpoints, each as a request made of a conversation and a stream that is read.

Nothing here decides anything: the loop is in `session`. A conversation goes into the request as it is (`extra_body`):
the package would walk through all of it first, 0.4 ms a message on the host's loop.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeAlias

import attrs

from buzz_author.events import Usage
from buzz_author.tools import Tool
from harnesses.direct.transcript import Called, Item, Returned, Said


@attrs.frozen
class Request:
    """What is asked of the model."""

    model: str
    system_prompt: str
    items: Sequence[Item]
    tools: Sequence[Tool]
    effort: str | None = None


@attrs.frozen
class Piece:
    """A piece of the answer's text; `part` tells its texts apart."""

    text: str
    part: int = 0


@attrs.frozen
class Finished:
    """The answer is whole: its calls, and what it cost."""

    calls: tuple[Called, ...]
    usage: Usage | None


Answer: TypeAlias = AsyncIterator[Piece | Finished]
Protocol: TypeAlias = Callable[[Any, Request], Answer]
UNFINISHED: Final = "the stream ended before the answer was whole"


class Unfinished(Exception):
    """The endpoint closed the stream in the middle of an answer."""


class Refused(Exception):
    """The endpoint reports a fault inside the stream of an answer."""


async def responses(client: Any, request: Request) -> Answer:
    """OpenAI Responses. Raises what the `openai` package raises, `Unfinished`, and `Refused`."""
    options: dict[str, Any] = {"reasoning": {"effort": request.effort}} if request.effort else {}
    if request.tools:
        options["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.input_schema,
                "strict": False,
            }
            for tool in request.tools
        ]
    stream = await client.responses.create(
        model=request.model,
        instructions=request.system_prompt,
        extra_body={"input": [_responses_item(each) for each in request.items]},
        store=False,
        stream=True,
        **options,
    )
    calls: list[Called] = []
    async with stream:
        async for event in stream:
            match event.type:
                case "response.output_text.delta":
                    yield Piece(event.delta, event.output_index)
                case "response.output_item.done" if event.item.type == "function_call":
                    calls.append(Called(event.item.call_id, event.item.name, event.item.arguments))
                case "response.completed" | "response.incomplete":
                    yield Finished(tuple(calls), _responses_usage(event.response.usage))
                    return
                case "response.failed":
                    error = event.response.error
                    raise Refused(error.message if error is not None else "the endpoint says that it failed")
                case "error":
                    raise Refused(event.message)
    raise Unfinished(UNFINISHED)


async def chat(client: Any, request: Request) -> Answer:
    """OpenAI Chat Completions. Raises what the `openai` package raises, and `Unfinished`."""
    options: dict[str, Any] = {"reasoning_effort": request.effort} if request.effort else {}
    if request.tools:
        options["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in request.tools
        ]
    stream = await client.chat.completions.create(
        model=request.model,
        messages=[],
        extra_body={"messages": [{"role": "system", "content": request.system_prompt}, *_chat_messages(request.items)]},
        stream=True,
        stream_options={"include_usage": True},
        **options,
    )
    calls: dict[int, list[str]] = {}
    usage: Usage | None = None
    finished = False
    async with stream:
        async for chunk in stream:
            if chunk.usage is not None:
                usage = _chat_usage(chunk.usage)
            for choice in chunk.choices:
                if choice.delta.content:
                    yield Piece(choice.delta.content)
                for call in choice.delta.tool_calls or ():
                    kept = calls.setdefault(call.index, ["", "", ""])
                    kept[0] = kept[0] or call.id or ""
                    if call.function is not None:
                        kept[1] += call.function.name or ""
                        kept[2] += call.function.arguments or ""
                finished = finished or choice.finish_reason is not None
    if not finished:
        raise Unfinished(UNFINISHED)
    made = (Called(call or f"call_{index}", name, written) for index, (call, name, written) in sorted(calls.items()))
    yield Finished(tuple(made), usage)


def _responses_item(item: Item) -> dict[str, Any]:
    match item:
        case Said("user", text):
            return {"role": "user", "content": [{"type": "input_text", "text": text}]}
        case Said(_, text):
            return {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
        case Called(call, name, arguments):
            return {"type": "function_call", "call_id": call, "name": name, "arguments": arguments}
        case Returned(call, text, ()):
            return {"type": "function_call_output", "call_id": call, "output": text}
        case Returned(call, text, images):
            output: list[dict[str, Any]] = [{"type": "input_text", "text": text}]
            output += [{"type": "input_image", "image_url": image, "detail": "auto"} for image in images]
            return {"type": "function_call_output", "call_id": call, "output": output}
    raise TypeError(item)


def _chat_messages(items: Sequence[Item]) -> list[dict[str, Any]]:
    """The messages; what the assistant said and the calls behind it are one of them, as the protocol wants it."""
    messages: list[dict[str, Any]] = []
    for item in items:
        match item:
            case Said(role, text):
                messages.append({"role": role, "content": text})
            case Called(call, name, arguments):
                if not messages or messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                made = {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
                messages[-1].setdefault("tool_calls", []).append(made)
            case Returned(call, text, images):
                # This protocol has no images in results: the model is told that there were some.
                told = [text, *(f"[an image of {len(image)} characters; it cannot be shown here]" for image in images)]
                messages.append({"role": "tool", "tool_call_id": call, "content": "\n".join(told)})
    return messages


def _responses_usage(usage: Any) -> Usage | None:
    if usage is None:
        return None
    details = usage.input_tokens_details
    return Usage(usage.input_tokens, usage.output_tokens, details.cached_tokens if details is not None else None)


def _chat_usage(usage: Any) -> Usage:
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached)


def arguments_of(called: Called) -> dict[str, Any] | None:
    """The arguments of a call; None where the model wrote no JSON object."""
    try:
        given = json.loads(called.arguments or "{}")
    except ValueError:
        return None
    return given if isinstance(given, dict) else None
