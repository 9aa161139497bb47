"""Golden scenarios of one leader, its followers and its clients; the stories are in testdata.

A story is a row of commands, each with what could be seen after it: answers that arrived, and
the state of the partition (log end, high watermark, ISR, what waits). This broker is 1, the
partition `t-0`, and followers are whoever fetches with a replica id. To accept new output,
run with ODRADEK_REWRITE=1 and read the diff.

    create [replicas=1,2] [isr=1] [setting=value]       what everything else is about
    produce name=p value=a acks=-1 [timeout_ms=500]     one record
    fetch name=f offset=0 [replica=2] [max_wait_ms=500] [min_bytes=1] [start=0]
    delete name=d before=2                              records
    wait ms=500                                         both clocks move
    accept | refuse                                     the oldest proposal for an ISR
    elect leader=2 epoch=1                              the controller's doing
    roll | fail-disk                                    the log's doing
"""

import os
import shlex
from pathlib import Path

import pytest
from tests.unit.replication.fakes import Cluster, batch

from odradek.errors import BrokerError, ErrorCode
from odradek.model import AppendOrigin, TopicPartition
from odradek.replication.append import AppendRequest
from odradek.replication.fetch import FetchInfo, FetchParams

STORIES = sorted((Path(__file__).parent / "testdata" / "replication").glob("*.txt"))
PARTITION = TopicPartition("t", 0)
RULE = "----"


class Teller:
    """Carries out a story's commands and says what can be seen."""

    def __init__(self, directory: str) -> None:
        self.cluster = Cluster(directory)
        self.answers: list[str] = []

    def tell(self, line: str) -> str:
        command, *words = shlex.split(line)
        options = dict(word.split("=", 1) for word in words)
        self.answers = []
        getattr(self, "_" + command.replace("-", "_"))(**options)
        return "\n".join([*self.answers, self._state()])

    def _state(self) -> str:
        partition = self.cluster.replicas.partition(PARTITION)
        waiting = self.cluster.replicas.purgatories
        parked = {
            "produce": waiting.produce.delayed,
            "fetch": waiting.fetch.delayed,
            "delete": waiting.delete_records.delayed,
        }
        log = partition.log
        if log is None:
            parts = ["offline"]
        else:
            offsets = (log.log_start_offset, log.log_end_offset, log.high_watermark)
            parts = ["start={} end={} hw={}".format(*offsets)]
        parts += [f"parked {name}={count}" for name, count in parked.items() if count]
        if partition.in_sync_replicas is not None:
            parts.append(f"isr={sorted(partition.in_sync_replicas.committed)}")
            if partition.in_sync_replicas.proposed is not None:
                parts.append(f"proposed={sorted(partition.in_sync_replicas.proposed)}")
        return " ".join(parts)

    def _create(self, replicas="1", isr="", **settings):
        members = tuple(map(int, (isr or replicas).split(",")))
        self.cluster.create("t", tuple(map(int, replicas.split(","))), isr=members, **settings)

    def _produce(self, name, value, acks="1", timeout_ms="500"):
        def on_done(results):
            (result,) = results
            self.answers.append(f"{name}: {result.error_code.name} offset={result.base_offset}")

        records = batch(value.encode())
        request = AppendRequest(
            int(acks), int(timeout_ms), AppendOrigin.CLIENT, [(PARTITION, records)], on_done
        )
        self.cluster.replicas.append_records([request])

    def _fetch(self, name, offset, replica="-1", max_wait_ms="0", min_bytes="1", start="0"):
        def on_done(results):
            (result,) = results
            records = sum(1 for _ in result.records)
            self.answers.append(
                f"{name}: {result.error_code.name} hw={result.high_watermark}"
                + (" with records" if records else " without records")
            )

        params = FetchParams(int(replica), int(max_wait_ms), int(min_bytes), 1 << 20)
        info = FetchInfo(PARTITION, int(offset), 1 << 20, int(start))
        self.cluster.replicas.fetch_messages(params, [info], on_done)

    def _delete(self, name, before, timeout_ms="500"):
        def on_done(results):
            (result,) = results
            self.answers.append(f"{name}: {result.error_code.name} low={result.low_watermark}")

        self.cluster.replicas.delete_records(
            int(timeout_ms), False, [(PARTITION, int(before))], on_done
        )

    def _wait(self, ms):
        self.cluster.wait(int(ms))

    def _accept(self):
        self.cluster.answer_proposal()

    def _refuse(self):
        self.cluster.answer_proposal(BrokerError(ErrorCode.INVALID_UPDATE_VERSION))

    def _elect(self, leader, epoch):
        self.cluster.change("t", leader=int(leader), leader_epoch=int(epoch))

    def _roll(self):
        self.cluster.replicas.partition(PARTITION).leader_log().appender.roll()

    def _fail_disk(self):
        self.cluster.log_manager.directories[0].fail(OSError(5, "gone"))


def retell(text: str, teller: Teller) -> str:
    """The story with what is seen now in the place of what was expected."""
    told = []
    for block in text.strip("\n").split("\n\n"):
        script = block.split(f"\n{RULE}")[0]
        command = script.splitlines()[-1]
        if command.startswith("#"):
            told.append(script)
        else:
            told.append(f"{script}\n{RULE}\n{teller.tell(command)}")
    return "\n\n".join(told) + "\n"


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, tmp_path: Path):
    """Fails when a cluster's clients or followers see something else at some step than before."""
    text = story.read_text()
    teller = Teller(str(tmp_path))
    try:
        told = retell(text, teller)
    finally:
        teller.cluster.close()
    if os.environ.get("ODRADEK_REWRITE"):
        story.write_text(told)
    assert told == text
