"""What a harness is: the way from a turn to a program that runs an agent, and back.

A harness is a plugin like any other (`ctx.agents.registerHarness`) and imports `buzz_author` only. It reaches processes
and tools through the `SessionHost` that it is handed; the host serialises the turns of a session, so `send` is never
called while a turn runs (HAR-02).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import attrs

from buzz_author.errors import BuzzError
from buzz_author.json_values import JsonObject

if TYPE_CHECKING:
    # Only named in annotations: a harness that is listed, or asked to encode, needs none of their classes.
    from buzz_author.events import HarnessEvent
    from buzz_author.instructions import AgentHandle
    from buzz_author.tools import GateDecision, Tool, ToolRequest, ToolResult
    from buzz_author.turns import Turn

Policy = Literal["ask", "plugin-tools-only", "read-only", "all"]
ErrorKind = Literal[
    "authentication",
    "rate-limit",
    "overloaded",
    "invalid-request",
    "connection",
    "timeout",
    "process-died",
    "unknown",
]


@attrs.frozen
class HarnessError(BuzzError):
    """One shape for the faults of every harness and model.

    `status` is the HTTP status where there was one, `native` what the program itself said, `retryable` whether the same
    turn may succeed later.
    """

    kind: ErrorKind
    native: str
    status: int | None = None
    retryable: bool = False

    def __str__(self) -> str:
        return f"{self.kind}{f' ({self.status})' if self.status else ''}: {self.native}"


@attrs.frozen
class Capabilities:
    """What a harness can carry. `carries_sections` is false where it builds its own prompt and calls none of
    `ctx.agents.harness`; the host then records the bare message, and the audit says so (TRN-03)."""

    carries_sections: bool = True
    steer: Literal["folds", "queues", "none"] = "none"
    tools: Literal["in-process", "rpc", "mcp", "none"] = "none"
    skills: bool = False
    resume: bool = False
    permission_requests: bool = False
    native_hooks: frozenset[str] = frozenset()
    key_variables: tuple[str, ...] = ()
    """Environment variables of which any one gives the program access to its model, when no `model_url` is given."""
    inherits: tuple[str, ...] | None = None
    """The other variables of the host's environment that the program gets; None where the harness does not say.
    `buzz doctor` lists them (SEC-02)."""


@attrs.frozen
class NpmProgram:
    """A program that Buzz can fetch for a harness: one pinned version of an npm package.

    `executable` is its file below the `node_modules` that it is installed into. `node` is the lowest version of node
    that runs it, such as `(22, 19)`; None where it is a program of its own. `megabytes` is what it takes on the disk.
    `integrity` pins archives of this version: the folder below `node_modules` and its `sha512-…`, as npm writes it; a
    package that differs is not installed.
    """

    package: str
    version: str
    executable: str
    megabytes: int
    node: tuple[int, int] | None = None
    integrity: Mapping[str, str] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class FoundProgram:
    """Where a program is: the words that start it (node and a script, or the program alone), its file, its version.

    `version` is None where it was not put there by Buzz: the program tells it when it is asked.
    """

    argv: tuple[str, ...]
    path: Path
    version: str | None = None


@attrs.frozen
class LoginCommand:
    """What a person runs in their terminal to log a program in to its provider, with the whole of its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@attrs.frozen
class Probe:
    """Whether the program is here: its version and path, or the fault that keeps it from running."""

    version: str | None = None
    path: Path | None = None
    fault: str | None = None


@attrs.frozen
class Gateway:
    """Where a session's tools are served: a loopback address and the bearer token for this session alone."""

    url: str
    token: str = attrs.field(repr=False)


@attrs.frozen
class SessionSpec:
    """What a session is made of. `config_dir` is the harness's own folder, kept between sessions; `model_url` an
    endpoint to use instead of the provider's; `resume` the harness's own id of an earlier session.

    `tools` are what plugins offer, sorted by name. A tool's name here is the one that the model has to see, the same in
    every harness (`buzz_author.tools.wire_name`); where a program builds names from a server's and a tool's, it is made
    of `split_wire_name`. Each call goes through `SessionHost.call_tool` with that name, never to `handler`."""

    session: str
    agent: AgentHandle
    cwd: Path
    config_dir: Path
    system_prompt: str
    model: str | None = None
    effort: str | None = None
    model_url: str | None = None
    resume: str | None = None
    tools: tuple[Tool, ...] = ()
    skills_dir: Path | None = None
    external_servers: JsonObject = attrs.field(factory=dict)
    policy: Policy = "plugin-tools-only"


class Process(Protocol):
    """A child process that dies with its owner, and with the host."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def stdin(self) -> asyncio.StreamWriter: ...
    @property
    def stdout(self) -> asyncio.StreamReader: ...
    @property
    def stderr(self) -> asyncio.StreamReader: ...
    async def wait(self) -> int: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...


class SessionHost(Protocol):
    """All that a harness session may ask of the host."""

    async def spawn(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> Process:
        """Start a program whose whole tree dies with the session, and with the host."""
        ...

    def launcher(self, program: Path, *, keep: Collection[str]) -> Path:
        """A program that starts `program` the same way, for an SDK that does the spawning by itself.

        Of the environment that the SDK gives it, only the variables named in `keep` reach `program` (SEC-02).
        """
        ...

    async def end(self, *, deadline_s: float) -> None:
        """End all programs of this session, and all that they started: asked first, then by force."""
        ...

    async def call_tool(self, call_id: str, name: str, arguments: JsonObject) -> ToolResult: ...
    async def gate(self, call: ToolRequest) -> GateDecision: ...

    @property
    def gateway(self) -> Gateway: ...


class HarnessSession(Protocol):
    """One running conversation with a program."""

    @property
    def native_id(self) -> str | None:
        """The program's own id, for `SessionSpec.resume`; None before there is one."""
        ...

    async def send(self, turn: Turn) -> None:
        """Start a turn. Returns once the program has it; what follows arrives as events."""
        ...

    async def steer(self, turn: Turn) -> None:
        """Hand a message to the running turn; how it went arrives as `SteerSettled`."""
        ...

    async def interrupt(self) -> None: ...

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None: ...

    def events(self) -> AsyncIterator[HarnessEvent]:
        """One stream for the whole session; it ends with `SessionEnded`. There is one `TurnEnded` for each
        `TurnStarted` and one `SteerSettled` for each steer, even when the program dies."""
        ...

    async def close(self, *, deadline_s: float) -> None:
        """End the program within `deadline_s` seconds, by force if it must be."""
        ...


class Harness(Protocol):
    """A kind of program that can run an agent's turns."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...

    async def probe(self) -> Probe:
        """What is installed; starts no session."""
        ...

    def encode(self, text: str, spec: SessionSpec) -> str:
        """The text as it must be handed to the program so that the model reads `text`. Pure; identity for most."""
        ...

    async def open(self, spec: SessionSpec, host: SessionHost) -> HarnessSession:
        """Start or resume a session. Raises `HarnessError`."""
        ...


@runtime_checkable
class Installable(Protocol):
    """A harness whose program `buzz harness install` can fetch. The member is optional: a harness may lack it."""

    @property
    def program(self) -> NpmProgram: ...


@runtime_checkable
class LogsIn(Protocol):
    """A harness whose program has a login of its own, for `buzz harness login`; optional as well."""

    def logged_in(self, config_dir: Path) -> bool:
        """Whether a login is kept below `config_dir`; looks at files only."""
        ...

    def login(self, config_dir: Path) -> LoginCommand:
        """How a person logs in; the login is kept below `config_dir`. Raises `HarnessError` without a program."""
        ...
