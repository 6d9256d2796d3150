"""The tools that plugins offer to agents, as one session has them: named, called, bounded, and served over loopback."""

from __future__ import annotations
