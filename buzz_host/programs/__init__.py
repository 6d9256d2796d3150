"""The programs of harnesses that Buzz fetches: where they are, and how they get there (HAR-06)."""

from __future__ import annotations
