"""`Host`: the Python face of Buzz. It wires the rooms together for one home, and lets go of everything at its end.

    async with Host() as host:
        async with host.session(agent="dev", rehearse=True) as session, session.turn("Hello") as events:
            async for event in events:
                print(event.as_json())

Nothing is started before it is needed: a preview opens no database and starts no program (API-02). For the same reason
what only a session needs is imported when one is opened: `buzz preview` is as quick as that.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit
from uuid import uuid4

import attrs

from buzz_author.errors import BuzzError
from buzz_author.harness import Gateway as GatewayAddress
from buzz_author.harness import Harness, LogsIn, Policy, Process, SessionSpec
from buzz_author.instructions import AgentHandle
from buzz_author.sections import Section
from buzz_host.agents.catalogue import AgentCatalogue
from buzz_host.agents.handle import TurnAgent
from buzz_host.agents.spec import AgentSpec
from buzz_host.programs.places import ProgramPlaces
from buzz_host.services.live_plugins import LivePlugins
from buzz_host.sessions.harness_calls import encoded
from buzz_host.sessions.turn_text import Preview, section_rows
from buzz_host.settings import Home
from buzz_host.turns.base_prompt import system_prompt
from buzz_host.turns.compose import checked_message, compose
from buzz_host.turns.guards import GuardRunner
from buzz_host.turns.snapshot import AgentView, SnapshotTaker, TakenSnapshot

if TYPE_CHECKING:
    from buzz_host.processes import Children
    from buzz_host.sessions.access import SessionAccess
    from buzz_host.sessions.actor import SessionActor
    from buzz_host.sessions.commands import ComposedTurn
    from buzz_host.sessions.roster import KnownSession
    from buzz_host.sessions.session import Session
    from buzz_host.store import Store
    from buzz_host.tools.gateway import Gateway
    from buzz_host.tools.session_tools import SessionTools


class NoWayToModel(BuzzError):
    """A session could not reach a model: no variable that gives access is set, and no endpoint was named."""


DEFAULT_HARNESS: Final = "claude"
# How a harness carries tools when its program calls them by HTTP.
SERVED: Final = frozenset({"mcp", "rpc"})
Trigger = Literal["message", "steer"]
# A preview belongs to no session and becomes no turn; its ids are this, so that the same preview is the same value.
NO_TURN: Final = "preview"
# What a plugin's program gets when the plugin says nothing: where programs are, and no secret of the host (SEC-02).
_PLAIN_ENVIRONMENT: Final[Mapping[str, str]] = {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8"}


class Host:
    """One home, running. Use it as an async context manager.

    `home` is the home folder (`$BUZZ_HOME`, else `~/.buzz`); `plugins` are paths of further plugins, which win over
    all others of their name (PLG-04); `programs` is where fetched programs are, if not in the home. Raises `BuzzError`
    for a home or a plugin path that cannot be used.
    """

    def __init__(
        self,
        home: Path | str | None = None,
        *,
        plugins: Sequence[Path | str] = (),
        programs: Path | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.home: Final = Home.resolve(Path(home) if home is not None else None)
        self._now = now
        self._agents = AgentCatalogue.load(self.home)
        self._children: Children | None = None
        self._children_lock = threading.Lock()
        self._swept = False
        self._opened: Store | None = None
        self._gateway: Gateway | None = None
        self._stack = AsyncExitStack()
        self.programs: Final = ProgramPlaces(programs or self.home.harnesses)
        self.plugins: Final = LivePlugins(
            self.home,
            [Path(each) for each in plugins],
            spawn=self._spawn_for_plugin,
            services={"programs": self.programs},
        )
        self._snapshots = SnapshotTaker(self.plugins.contributions, GuardRunner(), now)

    async def __aenter__(self) -> Host:
        await self.plugins.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        if self._gateway is not None:
            await self._gateway.close()
        await self.plugins.close()
        if self._children is not None:
            await self._children.close()
        if self._opened is not None:
            self._opened.close()

    @property
    def agents(self) -> AgentCatalogue:
        """The agents as their files stand now."""
        self._agents = self._agents.current(self.home)
        return self._agents

    @property
    def store(self) -> Store:
        """The database of this home, opened at the first use."""
        if self._opened is None:
            from buzz_host.store import Store

            self._opened = Store.open(self.home)
        return self._opened

    async def preview(
        self,
        message: str,
        *,
        agent: str | None = None,
        harness: str | None = None,
        trigger: Trigger = "message",
        here: Path | str | None = None,
    ) -> Preview:
        """The exact text that the next turn would carry, and why; nothing is started, sent or recorded.

        `trigger` is `message` for a person's message, `steer` for one that joins a running turn. `here` is the working
        directory where the agent's file names none (this process's own). Raises `BuzzError` for an agent or a harness
        that is not there, an empty message or another trigger.
        """
        if trigger not in ("message", "steer"):
            raise BuzzError(f"a turn cannot be previewed with the trigger {trigger!r}: it is 'message' or 'steer'")
        spec = self._agent(agent)
        kind = await self._harness(harness, spec)
        cwd = self._cwd(spec, here=here)
        taken = await self._snapshot(spec, kind, cwd, notes="show" if trigger == "message" else "leave")
        shape = self._shape(NO_TURN, taken.snapshot.agent, spec)
        turn = compose(
            turn_id=NO_TURN,
            kind=trigger,
            session=NO_TURN,
            snapshot=taken.snapshot,
            message=checked_message(message),
            encode=lambda text: encoded(kind, text, shape),
        )
        return Preview(
            at=self._now(),
            session=None,
            turn=None,
            agent=spec.name,
            harness=kind.id,
            kind=trigger,
            text=turn.text if kind.capabilities.carries_sections else turn.message,
            sections=section_rows(turn),
            left_out=taken.snapshot.left_out,
            faults=(*self.plugins.turn_faults(told=False), *taken.faults),
        )

    @asynccontextmanager
    async def session(
        self,
        *,
        agent: str | None = None,
        harness: str | None = None,
        model_url: str | None = None,
        rehearse: bool = False,
        record: Path | str | None = None,
        resume: str | None = None,
        cwd: Path | str | None = None,
        here: Path | str | None = None,
        answers: bool = True,
        start: bool = False,
    ) -> AsyncIterator[Session]:
        """A session with an agent for as long as the block lasts.

        `harness` defaults to what the agent's file says, else `claude`. `model_url` is an endpoint to use instead of
        the provider's; `rehearse` uses a model server of our own on loopback, which calls no model, and `record` has it
        append each request to a file. `resume` is the id of an earlier session, or the beginning of one. `cwd` is the
        working directory, whatever the agent's file says; `here` is it where that says nothing (this process's own).
        `answers` says whether somebody answers the session's requests: where nobody does, each is denied at once.
        `start` starts the program now, beside what the block does, and not with the first turn.
        Raises `BuzzError` in one line where something is missing; `SessionInUse` where somebody drives the session.
        """
        from buzz_host.processes import ProgramHost
        from buzz_host.rehearsal import Rehearsal
        from buzz_host.sessions.access import SessionAccess
        from buzz_host.sessions.lease import Lease
        from buzz_host.sessions.roster import KnownSession, remember
        from buzz_host.sessions.session import Session

        async with AsyncExitStack() as stack:
            known = self._resumed(resume, agent, harness)
            spec = self._agent(known.agent if known else agent)
            kind = await self._harness(known.harness if known else harness, spec)
            folder = known.cwd if known else self._cwd(spec, cwd, here)
            _must_reach_a_model(kind, model_url, self.home.data / kind.id, rehearse=rehearse, record=record)
            await _must_be_installed(kind)
            identifier = known.id if known else str(uuid4())
            stack.enter_context(Lease.take(self.home, identifier))
            rehearsal = None
            if rehearse:
                from buzz_host.processes.launcher import host_marker

                # By this name the next host's sweep knows what a killed one left.
                scratch = self._run_folder() / f"{host_marker()}.rehearsal-{uuid4().hex}"
                rehearsal = await stack.enter_async_context(
                    Rehearsal.start(Path(record) if record else None, folder=scratch)
                )
                model_url = rehearsal.url
            if known is None:
                started = KnownSession(identifier, spec.name, kind.id, folder, None, self._now())
                await self.store.write(lambda tx: remember(tx, started))
            tools = self._tools(spec, identifier)
            access = SessionAccess(ProgramHost(await self._processes(), identifier), self._policy(spec), tools)
            if tools.tools and kind.capabilities.tools in SERVED:
                access.gateway = await stack.enter_async_context(self._served(tools, access))
            actor = self._actor(
                identifier,
                spec,
                kind,
                folder,
                access=access,
                tools=tools,
                model_url=model_url,
                native_id=known.native_id if known else None,
                answers=answers,
            )
            actor.start(program=start)
            try:
                yield Session(identifier, spec.name, kind.id, actor, rehearsal)
            finally:
                await actor.close()

    def _actor(
        self,
        session: str,
        spec: AgentSpec,
        kind: Harness,
        cwd: Path,
        *,
        access: SessionAccess,
        tools: SessionTools,
        model_url: str | None,
        native_id: str | None,
        answers: bool,
    ) -> SessionActor:
        from buzz_host.sessions.actor import SessionActor
        from buzz_host.sessions.commands import ComposedTurn
        from buzz_host.sessions.recording import LedgerRecorder

        newest: tuple[Section, ...] = ()

        def instructions() -> tuple[Section, ...]:
            return newest

        handle = TurnAgent(spec.name, spec.scope, kind.id, spec.model, cwd, instructions)
        self.home.folder(self.home.data / kind.id)
        shape = attrs.evolve(
            self._shape(session, handle, spec, model_url=model_url, native_id=native_id), tools=tools.tools
        )

        async def composed(*, turn_id: str, message: str, steers: str | None) -> ComposedTurn:
            nonlocal newest
            taken = await self._snapshot(spec, kind, cwd, notes="take" if steers is None else "leave")
            newest = taken.snapshot.instructions
            turn = compose(
                turn_id=turn_id,
                kind="message" if steers is None else "steer",
                session=session,
                snapshot=taken.snapshot,
                message=message,
                steers=steers,
                encode=lambda text: encoded(kind, text, shape),
            )
            return ComposedTurn(
                turn,
                self._now(),
                (*self.plugins.turn_faults(told=True), *taken.faults, *tools.take_faults()),
                take_back=lambda: self.plugins.contributions.put_back(taken.taken_notes),
            )

        actor = SessionActor(
            shape,
            harness=kind,
            access=access,
            compose=composed,
            record=LedgerRecorder(self.store, session, kind.capabilities.carries_sections, self._now),
            now=self._now,
            answers=answers,
            permission_deadline_s=self.plugins.settings.permission_deadline_s,
        )
        access.asker = actor.ask
        return actor

    def _tools(self, spec: AgentSpec, session: str) -> SessionTools:
        """The tools of one session, as plugins offer them now."""
        from buzz_host.tools.session_tools import SessionTools

        def why_not(plugin: str) -> str | None:
            standing = next((each for each in self.plugins.standings(spec.name) if each.plugin == plugin), None)
            if standing is None:
                return "it is gone"
            return None if standing.standing == "active" else standing.detail or standing.standing

        return SessionTools.take(
            self.plugins.contributions, why_not, refresh=self.plugins.refresh, agent=spec.name, session=session
        )

    @asynccontextmanager
    async def _served(self, tools: SessionTools, access: SessionAccess) -> AsyncIterator[GatewayAddress]:
        """The address at which a program reaches the tools of its session, for as long as the block lasts."""
        from buzz_host.tools.gateway import Gateway

        if self._gateway is None:
            self._gateway = Gateway()
        address, revoke = await self._gateway.serve(tools.tools, access.call_tool)
        try:
            yield address
        finally:
            revoke()

    async def _snapshot(
        self, spec: AgentSpec, kind: Harness, cwd: Path, *, notes: Literal["take", "show", "leave"]
    ) -> TakenSnapshot:
        await self.plugins.refresh()
        return await self._snapshots.take(
            AgentView(spec.name, spec.scope, kind.id, spec.model, cwd), self.plugins.standings(spec.name), notes=notes
        )

    def _shape(
        self,
        session: str,
        handle: AgentHandle,
        spec: AgentSpec,
        *,
        model_url: str | None = None,
        native_id: str | None = None,
    ) -> SessionSpec:
        return SessionSpec(
            session=session,
            agent=handle,
            cwd=handle.cwd,
            config_dir=self.home.data / handle.harness,
            system_prompt=system_prompt(spec.prompt),
            model=spec.model,
            effort=spec.effort,
            model_url=model_url,
            resume=native_id,
            policy=self._policy(spec),
        )

    def _policy(self, spec: AgentSpec) -> Policy:
        """What the agent's file says, else what holds for the home (PRM-01)."""
        return spec.permissions or self.plugins.settings.permissions

    def _agent(self, name: str | None) -> AgentSpec:
        return self.agents.get(name or self.plugins.settings.default_agent)

    async def _harness(self, named: str | None, spec: AgentSpec) -> Harness:
        await self.plugins.refresh()
        return self.plugins.harness(named or spec.harness or DEFAULT_HARNESS)

    def _cwd(self, spec: AgentSpec, given: Path | str | None = None, here: Path | str | None = None) -> Path:
        folder = Path(given) if given is not None else spec.cwd or (Path(here) if here is not None else Path.cwd())
        folder = folder.expanduser().absolute()
        if not folder.is_dir():
            raise BuzzError(
                f"{folder}: the working directory of agent '{spec.name}' is no folder: make it, or name another"
            )
        return folder

    def _resumed(self, named: str | None, agent: str | None, harness: str | None) -> KnownSession | None:
        if named is None:
            return None
        from buzz_host.sessions.roster import ATTACHED, find

        with self.store.read() as connection:
            known = find(connection, named)
        if known.harness.endswith(ATTACHED):
            raise BuzzError(f"session {known.id} is one of a program that the person runs: go on with it there")
        for what, asked, is_ in (("agent", agent, known.agent), ("harness", harness, known.harness)):
            if asked is not None and asked != is_:
                raise BuzzError(f"session {known.id} belongs to {what} '{is_}', not '{asked}': leave --{what} out")
        return known

    async def sweep(self) -> None:
        """End what a host that was killed may have left behind. The first session does it as well."""
        from buzz_host.processes import sweep

        await asyncio.to_thread(sweep, self._run_folder())

    async def _processes(self) -> Children:
        if not self._swept:
            self._swept = True
            await self.sweep()
        return self._own_children()

    def _own_children(self) -> Children:
        """The processes of this host, for whatever loop asks first: a plugin asks on its own thread."""
        from buzz_host.processes import Children

        with self._children_lock:
            if self._children is None:
                self._children = Children(self._run_folder())
            return self._children

    def _run_folder(self) -> Path:
        return self.home.folder(self.home.root / "run")

    async def _spawn_for_plugin(self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None) -> Process:
        # On the plugin's own loop: its processes are those of that loop.
        return await self._own_children().spawn(
            argv, env=env if env is not None else _PLAIN_ENVIRONMENT, cwd=cwd or Path.cwd(), owner="plugins"
        )


async def _must_be_installed(kind: Harness) -> None:
    """Refuse a session whose program is not here, before anything is recorded."""
    probe = await kind.probe()
    if probe.fault is not None:
        raise BuzzError(f"{kind.title} cannot run here: {probe.fault}")


def _must_be_an_endpoint(url: str) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BuzzError(f"{url!r} is no endpoint of a model: give an address such as http://127.0.0.1:11434")


def _must_reach_a_model(
    kind: Harness, model_url: str | None, config_dir: Path, *, rehearse: bool, record: Path | str | None
) -> None:
    """Refuse, before anything is started, a session that could not reach a model."""
    if rehearse and model_url is not None:
        raise BuzzError("a rehearsal brings its own model server: give either --rehearse or --model-url")
    if record is not None and not rehearse:
        raise BuzzError("--record writes what the rehearsal model received: it needs --rehearse")
    if model_url is not None:
        _must_be_an_endpoint(model_url)
    variables = kind.capabilities.key_variables
    if rehearse or model_url is not None or not variables or any(os.environ.get(each) for each in variables):
        return
    login = ""
    if isinstance(kind, LogsIn):
        if kind.logged_in(config_dir):
            return
        login = f" log in with `buzz harness login {kind.id}`,"
    raise NoWayToModel(
        f"{kind.title} has no way to a model: set {' or '.join(variables)},{login} or give --model-url URL, "
        "or --rehearse to try without a model"
    )
