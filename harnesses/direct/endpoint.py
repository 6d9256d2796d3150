"""One endpoint: its client, which protocol it speaks, and its first model.

Importing this takes a second or two: it is done in a thread, when the first session opens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx2
import openai

from buzz_author.endpoints import is_loopback, openai_base_url
from buzz_author.harness import HarnessError
from harnesses.direct import faults
from harnesses.direct.protocols import Protocol, chat, responses
from harnesses.stdio.environment import LOOPBACK_KEY

CONNECT_S: Final = 10.0
MODEL_KEYS: Final = ("OPENAI_API_KEY",)


class Endpoint:
    """A client for one address."""

    def __init__(
        self, url: str | None, environ: Mapping[str, str], idle_s: float, spoken: dict[str | None, Protocol]
    ) -> None:
        """`url` is the address, None for OpenAI's own; a stream that is silent for `idle_s` seconds has failed.
        `spoken` keeps which protocol an address speaks, for the sessions that follow."""
        key = next((environ[name] for name in MODEL_KEYS if environ.get(name)), None)
        here = url is not None and is_loopback(url)
        self._url = url
        self._spoken = spoken
        # An endpoint on this machine gets nothing of a person's: no key, no account's name, no way through a proxy.
        plain: dict[str, object] = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
        self.client = openai.AsyncOpenAI(
            base_url=openai_base_url(url) if url is not None else None,
            api_key=LOOPBACK_KEY if here or key is None else key,
            max_retries=0,  # the session retries, and tells it
            timeout=openai.Timeout(idle_s, connect=CONNECT_S),
            default_headers=plain if here else None,  # type: ignore[arg-type]  # `Omit` is what the package takes
            http_client=openai.DefaultAsyncHttpxClient(trust_env=not here),
        )

    @property
    def protocols(self) -> tuple[Protocol, ...]:
        """The protocols to try, in their order: the one that is known to be spoken, else both."""
        known = self._spoken.get(self._url)
        return (known,) if known is not None else (responses, chat)

    def answered(self, protocol: Protocol) -> None:
        """The endpoint has answered in this protocol."""
        self._spoken[self._url] = protocol

    async def first_model(self) -> str:
        """The first model that the endpoint lists. Raises `HarnessError`."""
        try:
            async for model in self.client.models.list():
                return model.id
        except (openai.OpenAIError, httpx2.HTTPError) as error:
            raise faults.of_exception(error) from error
        raise HarnessError("invalid-request", "the endpoint lists no model: name one in the agent's file")

    async def close(self) -> None:
        """Close the connections."""
        await self.client.close()
