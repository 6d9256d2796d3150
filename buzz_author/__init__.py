"""Buzz for authors: what plugins and harnesses import. One plugin, every coding agent.

Submodules are loaded when a name is first used, so that importing this package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from buzz_author.errors import BuzzError, InvalidName, PluginClosed, PluginFault, RegistrationError
    from buzz_author.harness import (
        Capabilities,
        Harness,
        HarnessError,
        HarnessSession,
        Probe,
        SessionHost,
        SessionSpec,
    )
    from buzz_author.instructions import INSTRUCTION_MAX_BYTES, AgentHandle, AgentInstructions
    from buzz_author.plugins import (
        Agents,
        Disposer,
        PluginContext,
        PluginEntry,
        PluginIdentity,
        PluginManifest,
    )
    from buzz_author.sections import Section, Source, parse, render, section
    from buzz_author.text import OUR_TAGS, PROGRAM_TAGS, neutralise
    from buzz_author.tooling import mcp_error, mcp_result, tool
    from buzz_author.tools import Annotations, Image, Resource, Text, Tool, ToolCall, ToolResult
    from buzz_author.turns import LeftOut, Snapshot, Turn, TurnKind, TurnRendering

_HOMES = {
    "errors": ("BuzzError", "InvalidName", "PluginClosed", "PluginFault", "RegistrationError"),
    "harness": (
        "Capabilities",
        "Harness",
        "HarnessError",
        "HarnessSession",
        "Probe",
        "SessionHost",
        "SessionSpec",
    ),
    "instructions": ("INSTRUCTION_MAX_BYTES", "AgentHandle", "AgentInstructions"),
    "plugins": ("Agents", "Disposer", "PluginContext", "PluginEntry", "PluginIdentity", "PluginManifest"),
    "sections": ("Section", "Source", "parse", "render", "section"),
    "text": ("OUR_TAGS", "PROGRAM_TAGS", "neutralise"),
    "tooling": ("mcp_error", "mcp_result", "tool"),
    "tools": ("Annotations", "Image", "Resource", "Text", "Tool", "ToolCall", "ToolResult"),
    "turns": ("LeftOut", "Snapshot", "Turn", "TurnKind", "TurnRendering"),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "INSTRUCTION_MAX_BYTES",
    "OUR_TAGS",
    "PROGRAM_TAGS",
    "AgentHandle",
    "AgentInstructions",
    "Agents",
    "Annotations",
    "BuzzError",
    "Capabilities",
    "Disposer",
    "Harness",
    "HarnessError",
    "HarnessSession",
    "Image",
    "InvalidName",
    "LeftOut",
    "PluginClosed",
    "PluginContext",
    "PluginEntry",
    "PluginFault",
    "PluginIdentity",
    "PluginManifest",
    "Probe",
    "RegistrationError",
    "Resource",
    "Section",
    "SessionHost",
    "SessionSpec",
    "Snapshot",
    "Source",
    "Text",
    "Tool",
    "ToolCall",
    "ToolResult",
    "Turn",
    "TurnKind",
    "TurnRendering",
    "mcp_error",
    "mcp_result",
    "neutralise",
    "parse",
    "render",
    "section",
    "tool",
]


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'buzz_author' has no attribute {name!r}")
    value = getattr(import_module(f"buzz_author.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
