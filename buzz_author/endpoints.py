"""Addresses of models: which are this machine's own, and where an OpenAI-compatible one has its calls.

For harnesses: a loopback model needs no key and must not get a person's, and a person may write an endpoint with or
without its `/v1` (SEC-02, HAR-04). Nothing is looked up here: an address is judged by its letters.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit, urlunsplit


def is_loopback(url: str) -> bool:
    """Whether the address is this machine's own; a name other than `localhost` is not, whatever it resolves to."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def openai_base_url(url: str) -> str:
    """`url` as a client of the OpenAI protocols wants it, without a slash at its end; one without a path gets `/v1`."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/") or "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
