"""A broker over several directories, one of which cannot be used at a start."""

import asyncio
import errno
import os
from pathlib import Path

from odradek.clock import SystemClock
from odradek.config import BrokerConfig
from odradek.controller import CreatableTopic
from odradek.server.broker import BrokerServer
from odradek.server.in_process.calls.making import create_topic


def test_partitions_of_a_directory_that_is_away_wait_for_it(tmp_path: Path) -> None:
    """They would begin anew, empty, in another directory: clients would see their data lost."""
    first, second, away = tmp_path / "a", tmp_path / "b", tmp_path / "away"
    settings = {
        "log.dirs": f"{first},{second}",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "broker.id": "1",
        "node.id": "1",
    }

    async def homes_and_leaders() -> tuple[dict[int, str], dict[int, int]]:
        broker = BrokerServer(BrokerConfig(settings), SystemClock())
        await broker.start()
        if "t" not in broker.metadata.image.topics:
            await create_topic(broker, CreatableTopic("t", 4))
        image = broker.metadata.image.topics["t"]
        logs = broker.logs.logs()
        await broker.stop()
        return (
            {log.topic_partition.partition: log.log_directory.path for log in logs},
            {partition.partition: partition.leader for partition in image.partitions},
        )

    async def main() -> None:
        homes, leaders = await homes_and_leaders()
        lost = [number for number, home in homes.items() if home == str(second)]
        assert len(lost) == 2
        os.rename(second, away)
        second.write_text("a file where a directory should be", encoding="utf-8")
        found, led = await homes_and_leaders()
        assert found == {n: home for n, home in homes.items() if n not in lost}
        assert led == {n: -1 if n in lost else leader for n, leader in leaders.items()}
        second.unlink()
        os.rename(away, second)
        assert await homes_and_leaders() == (homes, leaders)

    asyncio.run(main())


def test_a_broker_without_any_directory_left_halts(tmp_path: Path) -> None:
    """It would live on, answer every request with an error, and never be restarted."""
    settings = {
        "log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "broker.id": "1",
        "node.id": "1",
    }
    halted: list[str] = []

    async def main() -> None:
        broker = BrokerServer(BrokerConfig(settings), SystemClock(), on_halt=halted.append)
        await broker.start()
        first, second = broker.logs.directories
        first.fail(OSError(errno.EIO, "the first disk fails"))
        assert halted == []
        second.fail(OSError(errno.EIO, "the second disk fails"))
        await broker.stop()

    asyncio.run(main())
    assert halted == [f"every log directory has failed: {tmp_path / 'a'}, {tmp_path / 'b'}"]
