"""A broker that cannot go on: it ends with one line and status 1, and marks nothing as sound."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

from odradek.clock import SystemClock
from odradek.config import BrokerConfig
from odradek.config.single_node import SINGLE_NODE_DEFAULTS
from odradek.controller import CreatableTopic
from odradek.errors import BrokerError
from odradek.metadata import ListenerStage, MetadataDelta
from odradek.server.broker import BrokerServer
from odradek.server.in_process.calls.making import create_topic
from odradek.timer import TimerTask


def fail() -> None:
    """Does what no code of ours should do."""
    raise AssertionError("two and two")


async def started(directory: Path, halted: list[str]) -> BrokerServer:
    """A broker that notes why it was halted."""
    settings = {
        **SINGLE_NODE_DEFAULTS,
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
    }
    broker = BrokerServer(BrokerConfig(settings), SystemClock(), on_halt=halted.append)
    await broker.start()
    return broker


@pytest.mark.parametrize("in_background", [True, False])
def test_a_broken_invariant_halts_the_broker(in_background: bool, tmp_path: Path) -> None:
    """The broker would go on without whatever waited for that work: a hang that nobody sees."""

    async def main() -> None:
        halted: list[str] = []
        broker = await started(tmp_path, halted)
        endpoint = broker.sockets.endpoints[0]
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        # Answered or not, the broker has taken the connection once it is being served.
        while not broker.sockets.quotas.total:
            await asyncio.sleep(0)
        if in_background:
            broker.background.submit(fail, pytest.fail, lambda _: None)
            await broker.background.drain()
        else:
            broker.timer.add(TimerTask(0, fail))
        assert halted == ["a broken invariant: two and two"]
        assert await reader.read() == b""
        writer.close()
        await broker.stop()
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        # The directory is free again, and sound: the next start recovers it.
        again = await started(tmp_path, halted)
        await again.stop()
        assert (tmp_path / ".kafka_cleanshutdown").exists()
        assert len(halted) == 1

    asyncio.run(main())


def test_a_broker_whose_metadata_code_raises_halts(tmp_path: Path) -> None:
    """It would live on for the others, deaf, or wait for ever for what it had begun."""

    async def main() -> None:
        halted: list[str] = []
        broker = await started(tmp_path, halted)

        def fail(_: MetadataDelta) -> tuple[()]:
            raise KeyError("no invariant is asserted")

        broker.store.subscribe(ListenerStage.SETTINGS, fail)
        await create_topic(broker, CreatableTopic("t", 1))
        assert halted == ["a broken invariant: KeyError('no invariant is asserted')"]
        await asyncio.sleep(0)
        with pytest.raises(BrokerError):
            await create_topic(broker, CreatableTopic("u", 1))
        await broker.stop()

    asyncio.run(main())


def test_a_process_that_halts_says_why_in_one_line() -> None:
    """A supervisor would not restart the broker, or nobody know why it had to."""
    done = subprocess.run(
        [sys.executable, "-c", "from odradek.cli.start import end_process; end_process('a: b')"],
        capture_output=True,
        text=True,
        timeout=deadline_s(60),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "odradek: a: b\n")
