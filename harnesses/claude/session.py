"""One conversation with the program: what is handed over goes through the SDK, what it says becomes events.

The stream keeps its laws whatever happens to the program: each turn ends once, each steer is settled once, and
`SessionEnded` comes last, when nothing of the program is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, Literal

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ClaudeSDKError
from claude_agent_sdk import Message as SdkMessage

from buzz_author.events import HarnessEvent, SessionEnded, SteerSettled
from buzz_author.harness import HarnessError, SessionHost, SessionSpec
from buzz_author.turns import Turn
from harnesses.claude import faults, program, tools
from harnesses.claude.flow import Flow
from harnesses.claude.permissions import Requests

LINE_MAX_BYTES: Final = 16 * 1024 * 1024
CONNECT_DEADLINE_S: Final = 60.0
WRITE_DEADLINE_S: Final = 30.0
INTERRUPT_DEADLINE_S: Final = 10.0
# At its end of input the program finishes its request first; it is not waited for longer than this.
GRACE_S: Final = 1.5
_GRACE_SHARE: Final = 0.4
CLEANUP_DEADLINE_S: Final = 5.0
CANCELLED_DEADLINE_S: Final = 0.5
_LAST_WAIT_S: Final = 1.0
# The program's last words may come after its end.
_LAST_WORDS_S: Final = 0.1


class ClaudeSession:
    """A running Claude Code; made by `start`."""

    def __init__(self, spec: SessionSpec, host: SessionHost, native_id: str, prompt: Path, log: logging.Logger) -> None:
        self._spec = spec
        self._host = host
        self._own_id = native_id
        self._prompt = prompt
        self._log = log
        self._tail = faults.StderrTail()
        self._events: asyncio.Queue[HarnessEvent] = asyncio.Queue()
        self._flow = Flow(self._events.put_nowait, log)
        ours = [each.name for each in spec.tools]
        self._requests = Requests(spec.policy, ours, lambda: self._flow.current, self._events.put_nowait)
        self._held: deque[Turn] = deque()
        self._handing = asyncio.Lock()
        self._later: asyncio.Task[None] | None = None
        self._over = False
        self._closing: asyncio.Task[None] | None = None
        self._client: ClaudeSDKClient
        self._reader: asyncio.Task[None]

    @classmethod
    async def start(
        cls,
        spec: SessionSpec,
        host: SessionHost,
        claude: Path,
        environment: Mapping[str, str],
        native_id: str,
        log: logging.Logger,
    ) -> ClaudeSession:
        """Start or resume; raises `HarnessError`, and leaves nothing behind then."""
        launcher = host.launcher(claude, keep={*environment, *program.SDK_VARIABLES})
        prompt = spec.config_dir / "buzz" / f"{native_id}.system-prompt"
        try:
            _make_folders(spec.config_dir)
            _write_private(prompt, spec.system_prompt)
        except OSError as error:
            path = error.filename or prompt  # a write that meets a full disk names none
            raise HarnessError("unknown", f"{path}: cannot be written ({error.strerror})") from error
        session = cls(spec, host, native_id, prompt, log)
        session._client = ClaudeSDKClient(session._options(launcher, environment))
        try:
            async with asyncio.timeout(CONNECT_DEADLINE_S):
                await session._client.connect()
        except BaseException as error:
            cancelled = isinstance(error, asyncio.CancelledError)  # somebody waits for it to end
            if not cancelled:
                await session._last_words()
            await session._clean_up(CANCELLED_DEADLINE_S if cancelled else CLEANUP_DEADLINE_S)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise faults.of_exception(error, session._tail) from error
        prompt.unlink(missing_ok=True)  # it is read at the start; a host that is killed later leaves no file
        session._reader = asyncio.create_task(session._read(), name=f"claude {native_id}")
        return session

    def _options(self, launcher: Path, environment: Mapping[str, str]) -> ClaudeAgentOptions:
        resumed = self._spec.resume is not None
        policy = self._spec.policy
        return ClaudeAgentOptions(
            cli_path=launcher,
            cwd=self._spec.cwd,
            env=dict(environment),
            model=self._spec.model,
            effort=self._spec.effort,  # type: ignore[arg-type]  # the program knows its own levels, and says so
            system_prompt={"type": "file", "path": str(self._prompt)},
            tools=tools.own_tools(policy),
            allowed_tools=tools.allowed(policy, self._spec.tools),
            disallowed_tools=list(tools.NEVER),
            permission_mode=tools.mode(policy),
            can_use_tool=self._requests.decide if tools.mode(policy) == "default" else None,
            mcp_servers=dict(tools.servers(self._spec.tools, self._host)),
            setting_sources=[],
            strict_mcp_config=True,
            verbatim_prompts=True,
            include_partial_messages=True,
            max_buffer_size=LINE_MAX_BYTES,
            session_id=None if resumed else self._own_id,
            resume=self._own_id if resumed else None,
            stderr=self._tail.add,
        )

    @property
    def native_id(self) -> str | None:
        """The id of the conversation; None until the program has written it down, so that it could be resumed."""
        kept = self._spec.resume is not None or any(self._spec.config_dir.glob(f"projects/*/{self._own_id}.jsonl"))
        return self._own_id if kept else None

    async def send(self, turn: Turn) -> None:
        """Hand over a turn. Raises `HarnessError` when the program cannot take it; no event is told of it then."""
        self._refuse_when_over()
        self._flow.sent(turn.id)
        try:
            await self._write(turn)
        except HarnessError:
            if self._flow.not_taken(turn.id):
                raise

    async def steer(self, turn: Turn) -> None:
        """Hand over a message for the running turn, or for a turn of its own if that has ended meanwhile.

        It is settled by an event, also when the program died before it could read it. Raises `HarnessError` only when
        the session is over and tells no events any more.
        """
        self._refuse_when_over()
        self._flow.steered(turn.id, turn.steers)
        self._held.append(turn)
        await self._hand_over()

    async def _hand_over(self) -> None:
        """Give the program the steers that it can take, in their order; the rest when it has ended a turn."""
        async with self._handing:
            while self._held and self._flow.has_room and not self._over:
                turn = self._held.popleft()
                self._flow.handed(turn.id)
                try:
                    await self._write(turn)
                except HarnessError:
                    if self._flow.not_taken(turn.id):
                        self._events.put_nowait(SteerSettled(turn.steers or turn.id, turn.id, "returned"))

    async def interrupt(self) -> None:
        """Stop the running turn, which then ends as `interrupted`; without one, nothing happens.

        A steer that waits is not taken back by this: the program then runs it as a turn of its own.
        """
        if self._over:
            return
        try:
            async with asyncio.timeout(INTERRUPT_DEADLINE_S):
                await self._client.interrupt()
        except (ClaudeSDKError, OSError) as error:  # it died: the stream tells
            self._log.debug("an interrupt met a program that is gone: %s", error)
        except Exception as error:
            raise faults.of_exception(error, self._tail) from error

    async def answer(
        self,
        request_id: str,
        decision: Literal["allow", "deny"],
        *,
        reason: str | None = None,
        reply: str | None = None,
    ) -> None:
        """Answer a request of the program's; `reply` is the answer to a question, or a JSON object of answers by
        question. Raises `HarnessError` for a request that waits for none, or not any more."""
        self._requests.answer(request_id, decision, reason, reply)

    async def events(self) -> AsyncIterator[HarnessEvent]:
        """Everything that happens, in order, until `SessionEnded`. For one reader."""
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, SessionEnded):
                return

    async def close(self, *, deadline_s: float) -> None:
        """End of input, then SIGTERM, then SIGKILL to the whole tree, all within `deadline_s` seconds.

        A turn that runs ends as `interrupted`. Calling it again waits for the first call.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(deadline_s), name=f"closing claude {self._own_id}")
        await asyncio.shield(self._closing)

    async def _close(self, deadline_s: float) -> None:
        if not self._over:
            await self._clean_up(deadline_s)
        await _settled(self._reader, _LAST_WAIT_S)
        self._end(None)

    # The program's side.

    async def _read(self) -> None:
        """Read what the program says until it is gone."""
        error: HarnessError | None = None
        while error is None:
            try:
                async for message in self._client.receive_messages():
                    self._take(message)
                error = HarnessError("process-died", _with("Claude Code ended by itself", self._tail), retryable=True)
            except asyncio.CancelledError:
                raise
            except Exception as fault:
                if type(fault).__name__ == "MessageParseError":  # one message that this SDK does not know; read on
                    self._log.debug("a message was passed over: %s", fault)
                    continue
                await self._last_words()
                error = faults.of_exception(fault, self._tail)
        if self._closing is None:
            self._flow.ended("failed", error)
            await self._clean_up()
            self._end(error)

    def _take(self, message: SdkMessage) -> None:
        try:
            self._flow.received(message)
        except Exception:
            self._log.exception("a message of Claude Code could not be followed: %s", type(message).__name__)
        if self._held and self._flow.has_room and (self._later is None or self._later.done()):
            self._later = asyncio.create_task(self._hand_over())

    def _end(self, error: HarnessError | None) -> None:
        """Close what is open and say that it is over; once."""
        if self._over:
            return
        self._over = True
        self._flow.ended("interrupted" if error is None else "failed", error)
        self._events.put_nowait(SessionEnded(error))

    async def _clean_up(self, deadline_s: float = CLEANUP_DEADLINE_S) -> None:
        """Have the SDK close its end, and the host end whatever is left of the program."""
        begun = time.monotonic()
        process = getattr(getattr(self._client, "_transport", None), "_process", None)
        leaving = asyncio.create_task(self._client.disconnect())
        await _settled(leaving, min(GRACE_S, deadline_s * _GRACE_SHARE))
        await self._host.end(deadline_s=max(deadline_s - (time.monotonic() - begun), 0.0))
        await _settled(leaving, _LAST_WAIT_S)
        if not leaving.done():
            leaving.cancel()
        elif not leaving.cancelled() and (fault := leaving.exception()) is not None:
            self._log.debug("the SDK could not close in order: %s", fault)
        await _read_to_end(process)
        self._prompt.unlink(missing_ok=True)

    async def _last_words(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tail.said.wait(), _LAST_WORDS_S)

    async def _write(self, turn: Turn) -> None:
        async def one() -> AsyncIterator[dict[str, object]]:
            yield {"type": "user", "uuid": turn.id, "message": {"role": "user", "content": turn.text}}

        try:
            async with asyncio.timeout(WRITE_DEADLINE_S):
                await self._client.query(one())
        except TimeoutError as error:
            # Half a line may be written: nothing that follows could be read.
            await self._host.end(deadline_s=CLEANUP_DEADLINE_S)
            raise HarnessError("timeout", "Claude Code does not read its input") from error
        except Exception as error:
            raise faults.of_exception(error, self._tail) from error

    def _refuse_when_over(self) -> None:
        if self._over or self._closing is not None:
            raise HarnessError("process-died", "this session of Claude Code has ended", retryable=True)


def _with(said: str, tail: faults.StderrTail) -> str:
    return f"{said}: {tail}" if str(tail) else said


def _make_folders(config_dir: Path) -> None:
    config_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in ("tmp", "buzz"):
        (config_dir / name).mkdir(mode=0o700, exist_ok=True)


def _write_private(path: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)


async def _read_to_end(process: object) -> None:
    """Read what the SDK has left in the pipe of a process that has ended: until its end was read, it stays open."""
    stdout = getattr(process, "stdout", None)
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_LAST_WAIT_S):
            while stdout is not None:
                await stdout.receive()


async def _settled(task: asyncio.Task[None], timeout_s: float) -> None:
    """Wait for a task without taking over its fault, and without being ended by it."""
    if task is not asyncio.current_task():
        await asyncio.wait({task}, timeout=timeout_s)
