"""What the harnesses of programs that speak JSON lines stand on, with real programs of a few lines each."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from buzz_author.harness import HarnessError
from buzz_host.processes import Children, ProgramHost
from buzz_host.sessions.access import SessionAccess
from harnesses.stdio.channel import LineChannel
from harnesses.stdio.rpc import RpcChannel

pytestmark = pytest.mark.anyio
LOG = logging.getLogger(__name__)


class Programs:
    """Starts small programs, each as the one of a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children = Children(folder / "run")
        self.access = SessionAccess(ProgramHost(self.children, "stdio"), "plugin-tools-only")

    async def start(self, code: str, limit_bytes: int = 1 << 24) -> LineChannel:
        argv = [sys.executable, "-c", code]
        return await LineChannel.start(
            "Parrot", argv, host=self.access, env={}, cwd=self.folder, log=LOG, limit_bytes=limit_bytes
        )


@pytest.fixture
async def programs(tmp_path: Path) -> AsyncIterator[Programs]:
    made = Programs(tmp_path)
    yield made
    assert await made.children.close() == ()


async def flood(channel: LineChannel) -> None:
    for _ in range(100):
        await channel.send({"text": "x" * 100_000})


ECHO = "import sys\nfor line in sys.stdin.buffer:\n    sys.stdout.buffer.write(line)\n    sys.stdout.flush()"


@pytest.mark.req("HAR-03")
async def test_lines_of_sixteen_megabytes_and_odd_separators_come_whole(programs: Programs) -> None:
    channel = await programs.start(ECHO)
    texts = ["\N{LINE SEPARATOR}\N{NEXT LINE}\r\x0b\x0c", "x" * (16 * 1024 * 1024 - 64), "🐝"]
    said = channel.messages()
    for text in texts:
        await channel.send({"text": text})
        assert await anext(said) == {"text": text}
    await channel.close(deadline_s=5.0)


@pytest.mark.req("HAR-03")
async def test_a_line_that_is_too_long_is_a_fault_and_one_that_is_no_json_is_passed_over(programs: Programs) -> None:
    code = 'print("no json")\nprint(\'{"a": 1}\', flush=True)\ninput()\nprint("x" * 5000)'
    channel = await programs.start(code, limit_bytes=4096)
    said = channel.messages()
    assert await anext(said) == {"a": 1}
    await channel.send({"go": "on"})
    with pytest.raises(HarnessError, match="Parrot sent what is not taken"):
        await anext(said)
    await channel.close(deadline_s=5.0)


@pytest.mark.req("HAR-03")
async def test_the_last_words_of_a_program_that_dies_are_in_its_fault(programs: Programs) -> None:
    words = "'x' * 100000 + '\\nwhat I wanted to say\\n'"
    channel = await programs.start(f"import sys\nsys.stderr.write({words})\nsys.exit(3)")
    assert [each async for each in channel.messages()] == []
    fault = await channel.died()
    assert (fault.kind, fault.retryable) == ("process-died", True)
    assert "Parrot ended with exit code 3" in fault.native
    assert fault.native.endswith("what I wanted to say")
    assert len(fault.native) < 2100
    with pytest.raises(HarnessError, match="exit code 3"):
        await flood(channel)
    await channel.close(deadline_s=5.0)


@pytest.mark.req("HAR-03")
async def test_a_program_that_is_not_there_is_refused_in_one_line(programs: Programs) -> None:
    with pytest.raises(HarnessError, match="Parrot cannot be started: no-such-program") as refused:
        await LineChannel.start(
            "Parrot", ["no-such-program"], host=programs.access, env={}, cwd=programs.folder, log=LOG
        )
    assert refused.value.kind == "invalid-request"


@pytest.mark.req("HAR-03")
async def test_a_program_that_does_not_read_is_ended(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harnesses.stdio.channel.WRITE_DEADLINE_S", 0.5)
    channel = await programs.start("import time\ntime.sleep(600)")
    with pytest.raises(HarnessError, match="does not read its input") as refused:
        await flood(channel)
    assert refused.value.kind == "timeout"
    await channel.close(deadline_s=5.0)


@pytest.mark.req("HAR-03")
async def test_all_who_wait_for_an_answer_fail_at_once_when_the_program_dies(programs: Programs) -> None:
    channel = await programs.start("import sys\nsys.stdin.readline(); sys.stdin.readline()\nsys.exit(7)")
    ended: list[HarnessError] = []
    rpc = RpcChannel(channel, lambda said: None, ended.append, LOG)
    first = rpc.ask("wait", {}, deadline_s=None)
    second = rpc.ask("wait", {}, deadline_s=None)
    raised = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 20)
    assert [type(each) for each in raised] == [HarnessError, HarnessError]
    assert "exit code 7" in str(raised[0])
    await asyncio.wait_for(rpc.reading, 20)
    assert [each.kind for each in ended] == ["process-died"]
    with pytest.raises(HarnessError, match="exit code 7"):
        await rpc.ask("late", {})
    await channel.close(deadline_s=5.0)
