"""The tools of one session: taken once, called by the names that the model sees (TRN-06, ASM-02, ASM-05).

Whatever a tool does, the caller gets a result: what a plugin's code raises, a call that takes too long, arguments that
do not fit, and a tool whose plugin was switched off since are errors that the model can read, with the plugin's name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import attrs

from buzz_author.errors import PluginFault
from buzz_author.json_values import JsonObject
from buzz_author.tooling import plain, tool_result
from buzz_author.tools import Text, Tool, ToolCall, ToolResult, wire_name
from buzz_host.plugins.contributions import TOOLS, Contributions, OfferedTool
from buzz_host.plugins.faults import exception_fault
from buzz_host.plugins.threads import GivenUp, Job

RESULT_MAX_BYTES: Final = 10 * 1024 * 1024
PHASE: Final = "tool"
# A call that was given up gets this long to notice, so that its clean-up runs before the next thing happens.
CANCELLED_GRACE_S: Final = 0.25
BREAK_OFF_TRIES: Final = 4


@attrs.frozen
class SessionTool:
    """One tool of a session: whose it is, and the tool itself under the name that the model sees."""

    plugin: str
    own_name: str
    tool: Tool


class SessionTools:
    """The tools that a session has from its start to its end; made by `take`."""

    def __init__(
        self,
        offered: Iterable[SessionTool],
        faults: tuple[PluginFault, ...],
        contributions: Contributions,
        why_not: Callable[[str], str | None],
        *,
        refresh: Callable[[], Awaitable[None]],
        agent: str,
        session: str,
    ) -> None:
        self._by_name: Final[Mapping[str, SessionTool]] = {each.tool.name: each for each in offered}
        self._contributions = contributions
        self._why_not = why_not
        self._refresh = refresh
        self._agent = agent
        self._session = session
        self._call_faults = list(faults)
        self._known = {each.plugin for each in self._by_name.values()} | {each.plugin for each in faults}
        self._stopping: set[asyncio.Task[None]] = set()

    @classmethod
    def take(
        cls,
        contributions: Contributions,
        why_not: Callable[[str], str | None],
        *,
        refresh: Callable[[], Awaitable[None]],
        agent: str,
        session: str,
    ) -> SessionTools:
        """What active plugins offer now to `agent`.

        `why_not` says why a plugin may not serve this agent now, or None when it may; it is asked again at each call,
        after `refresh`, which sees what was switched meanwhile.
        Of two tools whose names meet after shortening, the first by plugin and name is taken, and the other is a fault.
        """
        offered: dict[str, SessionTool] = {}
        faults = []
        for each in contributions.snapshot(TOOLS):
            if why_not(each.plugin) is not None:
                continue
            tool = each.value.tool
            name = wire_name(each.plugin, tool.name)
            if name in offered:
                first = offered[name]
                faults.append(
                    PluginFault(
                        each.plugin,
                        PHASE,
                        f"tool '{tool.name}' is left out: its name '{name}' is that of '{first.own_name}' of plugin "
                        f"'{first.plugin}'; rename one",
                    )
                )
                continue
            shown = attrs.evolve(tool, name=name, input_schema=plain(tool.input_schema))
            offered[name] = SessionTool(each.plugin, tool.name, shown)
        ordered = [offered[name] for name in sorted(offered)]
        return cls(ordered, tuple(faults), contributions, why_not, refresh=refresh, agent=agent, session=session)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools, sorted by the names that the model sees; the same bytes in every session with the same set."""
        return tuple(each.tool for each in self._by_name.values())

    def find(self, name: str) -> SessionTool | None:
        """The tool of this name, as the model sees it."""
        return self._by_name.get(name)

    def plugin_of(self, name: str) -> str | None:
        """Whose tool this is; None for a tool of the program's own."""
        found = self._by_name.get(name)
        return found.plugin if found is not None else None

    async def call(self, name: str, arguments: JsonObject) -> ToolResult:
        """The tool's answer; raises nothing but a cancellation, which ends the call."""
        found = self._by_name.get(name)
        if found is None:
            known = ", ".join(self._by_name) or "none"
            return _error(f"there is no tool '{name}' in this session; the tools are: {known}")
        await self._refresh()
        why_not = self._why_not(found.plugin)
        offered = self._offered(found)
        if why_not is not None or offered is None:
            return _error(
                f"the tool '{name}' is not there any more: plugin '{found.plugin}' "
                f"{f'does not serve this agent now ({why_not})' if why_not else 'does not offer it now'}"
            )
        if wrong := _mismatch(found.tool.input_schema, arguments):
            return _error(f"the arguments of '{name}' do not fit: {wrong}")
        return _bounded(found, await self._run(found, offered, arguments))

    def take_faults(self) -> tuple[PluginFault, ...]:
        """For the next turn's faults: what went wrong in calls since this was asked last, and whose tools came late."""
        for each in self._contributions.snapshot(TOOLS):
            if each.plugin not in self._known and self._why_not(each.plugin) is None:
                self._known.add(each.plugin)
                said = "its tools come with the next session: it was not active yet when this one began"
                self._call_faults.append(PluginFault(each.plugin, PHASE, said))
        taken, self._call_faults = tuple(self._call_faults), []
        return taken

    def _offered(self, found: SessionTool) -> OfferedTool | None:
        """The tool as its plugin offers it now: after a reload, that of the new code."""
        for each in self._contributions.snapshot(TOOLS):
            if each.plugin == found.plugin and each.id == found.own_name:
                return each.value
        return None

    async def _run(self, found: SessionTool, offered: OfferedTool, arguments: JsonObject) -> ToolResult:
        cancelled = False
        log = logging.getLogger(f"buzz.plugin.{found.plugin}")

        def progress(done: float, said: str) -> None:
            log.info("tool %s: %g %s", found.own_name, done, said)

        call = ToolCall(self._agent, self._session, progress, lambda: cancelled)
        own = plain(arguments)  # the handler may change what it is given
        job = offered.run(lambda: offered.tool.handler(own, call))
        limit_s = offered.tool.timeout_s
        try:
            in_time = await job.wait(limit_s)
        except asyncio.CancelledError:
            cancelled = True
            stopping = asyncio.create_task(_stopped(job, offered))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            raise
        whose = f"the tool '{found.own_name}' of plugin '{found.plugin}'"
        if not in_time:
            cancelled = True
            await _stopped(job, offered)
            said = f"{whose} had not answered after {limit_s:g} s, and was stopped"
            self._call_faults.append(PluginFault(found.plugin, PHASE, said))
            return _error(said)
        try:
            return tool_result(job.result())
        except GivenUp:
            return _error(f"{whose} was stopped: it held up its plugin, or its plugin has ended")
        except BaseException as error:
            fault = exception_fault(found.plugin, PHASE, error)
            self._call_faults.append(attrs.evolve(fault, message=f"tool '{found.own_name}': {fault.message}"))
            log.error("tool %s: %s", found.own_name, fault.message)
            return _error(f"{whose} failed: {fault.message}")


async def _stopped(job: Job[ToolResult], offered: OfferedTool) -> None:
    """Stop a call that nobody waits for any more."""
    job.cancel()
    for _ in range(BREAK_OFF_TRIES):
        if await job.wait(CANCELLED_GRACE_S):
            return
        offered.break_off()  # it awaits nothing, and so has not heard that it was cancelled


def _error(message: str) -> ToolResult:
    return ToolResult((Text(message),), is_error=True)


def _bounded(found: SessionTool, result: ToolResult) -> ToolResult:
    """`result`, or the error that it is too large."""
    size = 0
    for each in result.content:
        match each:
            case Text(text):
                size += len(text.encode("utf-8", "surrogatepass"))
            case _:
                size += len(getattr(each, "content", b"")) + len(getattr(each, "text", ""))
    if size > RESULT_MAX_BYTES:
        return _error(
            f"the tool '{found.own_name}' of plugin '{found.plugin}' gave {size:,} bytes; "
            f"at most {RESULT_MAX_BYTES:,} are taken"
        )
    return result


def _mismatch(schema: JsonObject, arguments: JsonObject) -> str | None:
    """Where `arguments` do not fit `schema`, in one line; None where they do."""
    try:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match
        from referencing import Registry
    except ImportError:  # it comes with the extras; the tool itself will say what it misses
        return _missing(schema, arguments)
    try:
        # An empty registry: what a schema refers to elsewhere is never fetched.
        validator = Draft202012Validator(plain(schema), registry=Registry())
        worst = best_match(validator.iter_errors(plain(arguments)))
    except Exception:  # a schema that nobody can apply: the tool itself will say
        return None
    if worst is None:
        return None
    return f"{worst.json_path}: {worst.message}"[:500]


def _missing(schema: JsonObject, arguments: JsonObject) -> str | None:
    required = schema.get("required")
    missing = [each for each in required if each not in arguments] if isinstance(required, list | tuple) else []
    return f"$: {missing[0]!r} is a required property" if missing else None
