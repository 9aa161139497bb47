"""A batch is written once under a query's name, whoever repeats it and whenever it died."""

import asyncio
from collections.abc import Iterator

import pytest

from odradek import Broker
from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.group_metadata import GroupMetadata
from odradek.client.errors import KafkaError
from odradek.clock import ManualClock
from odradek.model import TopicPartition
from odradek.tables.errors import OutdatedQuery
from odradek.tables.write.transaction import BatchTransaction, WriterName, is_bookkeeping

MARKER = TopicPartition("out", 0)
TIMEOUT_MS = 60_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("out")
        yield running


class Killed(BatchTransaction):
    """An attempt that ends without a word, as a process that is killed does."""

    async def _close(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()

    def prepare(self, batch_id: int) -> None:
        """Half a commit: the marker is sent, and no end."""
        assert self._manager is not None
        offsets = {MARKER: CommittedOffset(batch_id + 1, "3")}
        group = GroupMetadata(self._name.marker_group)
        self._runner.run(self._manager.send_offsets(offsets, group))


def attempt(
    broker: Broker,
    task: int = 0,
    *,
    topic: str = "out",
    run: str = "run-1",
    checkpoint: str = "c",
    kind: type[BatchTransaction] = BatchTransaction,
) -> BatchTransaction:
    name = WriterName("q", checkpoint, run, task)
    return kind(broker.bootstrap_servers, name, TopicPartition(topic, 0), timeout_ms=TIMEOUT_MS)


def write(broker: Broker, batch_id: int, **who: str) -> bool:
    """A whole attempt, without records; whether it was its batch's first."""
    with attempt(broker, **who) as one:  # type: ignore[arg-type]
        if not one.begin(batch_id):
            return False
        one.commit(batch_id, 3)
        return True


@pytest.mark.parametrize(
    ("group_id", "expected"),
    [
        (WriterName("q", "c", "r", 17).marker_group, True),
        (WriterName("my query", "c", "r", 0).claim_group, True),
        ("spark.q", False),
        ("spark.sink", False),
        ("billing.sink", False),
    ],
)
def test_its_groups_are_told_from_readers(group_id: str, expected: bool) -> None:
    """Lag would be told of them, and alarms given."""
    assert is_bookkeeping(group_id) is expected


def test_a_batch_is_begun_until_it_is_written(broker: Broker) -> None:
    """A repeated batch would be written twice, or one that was not never be."""
    for kind in (BatchTransaction, Killed):
        with attempt(broker, kind=kind) as died:
            assert died.begin(0)
    assert [write(broker, 0), write(broker, 0)] == [True, False]
    assert [write(broker, 1), write(broker, 1)] == [True, False]
    assert write(broker, 7), "there was nothing for this task in between"
    with attempt(broker, task=1) as other:
        assert other.begin(0), "another task has a name of its own"


def test_an_older_attempt_cannot_commit(broker: Broker) -> None:
    """Two attempts at one batch would both be visible."""
    with attempt(broker) as older, attempt(broker) as newer:
        assert older.begin(0)
        assert newer.begin(0)
        with pytest.raises(KafkaError):
            older.commit(0, 3)
        newer.commit(0, 3)
    with attempt(broker) as again:
        assert not again.begin(0)


def test_a_task_that_fails_takes_back_what_it_began(broker: Broker) -> None:
    """Readers of what is committed would wait for the transaction to time out."""
    with attempt(broker) as failing:
        assert failing.begin(0)
        failing.add_partitions([MARKER])

    async def state() -> str:
        async with Admin(broker.bootstrap_servers) as admin:
            found = (await admin.describe_transactions(["spark.q.out.0"]))["spark.q.out.0"]
        assert not isinstance(found, KafkaError)
        return found.state

    assert asyncio.run(state()) == "CompleteAbort"


def test_a_task_that_took_too_long_cannot_commit_and_is_repeated() -> None:
    """The coordinator has taken its records back: a commit would be one of nothing."""
    clock = ManualClock()

    def be_slow(broker: Broker) -> None:
        with attempt(broker) as slow:
            assert slow.begin(0)
            slow.add_partitions([MARKER])
            clock.advance(TIMEOUT_MS + 30_000)
            slow.commit(0, 3)

    with Broker(clock=clock) as broker:
        broker.create_topic("out")
        late = r"another attempt at task 0 .*, or this one took longer than .* \(60000\)"
        with pytest.raises(OutdatedQuery, match=late):
            be_slow(broker)
        assert [write(broker, 0), write(broker, 0)] == [True, False]


def test_the_older_of_two_runs_is_shut_out_and_disturbs_nobody(broker: Broker) -> None:
    """They would take turns to shut each other out, or both write."""
    assert write(broker, 0, run="older")
    with attempt(broker, run="newer") as newer:
        assert newer.begin(1)
        for _ in range(2):
            with pytest.raises(OutdatedQuery, match="query q was started again"):
                write(broker, 1, run="older")
        newer.commit(1, 3)
    assert write(broker, 2, run="newer")


def test_a_task_of_an_old_run_that_was_held_up_takes_nothing_over(broker: Broker) -> None:
    """It came to nothing before its Spark died: the newer run would be refused for it."""
    assert write(broker, 0, run="newer")
    assert not write(broker, 0, run="held up")
    assert write(broker, 1, run="newer")
    with pytest.raises(OutdatedQuery, match="its checkpoint is older"):
        write(broker, 0, run="held up")
    assert write(broker, 2, run="newer")


def test_a_run_that_comes_does_not_wait_for_what_the_last_one_left(broker: Broker) -> None:
    """A transaction with a marker in it is open until somebody asks for its producer id."""
    assert write(broker, 0, run="older")
    with attempt(broker, run="older", kind=Killed) as died:
        assert died.begin(1)
        died.prepare(1)
    assert write(broker, 1, run="newer")


def test_queries_of_one_name_that_write_to_different_topics_do_not_meet(broker: Broker) -> None:
    """Jobs name their queries alike, `main`, and would shut each other out for ever."""
    broker.create_topic("other")
    with attempt(broker, run="here") as here, attempt(broker, run="there", topic="other") as there:
        assert here.begin(0)
        assert there.begin(0)
        here.commit(0, 3)
        there.commit(0, 3)
    assert write(broker, 1, run="here")


def test_a_query_with_another_checkpoint_has_batches_of_its_own(broker: Broker) -> None:
    """Its first batches would be taken for those of the query that had the name before."""
    assert write(broker, 0, run="1", checkpoint="first")
    assert write(broker, 1, run="1", checkpoint="first")
    assert write(broker, 0, run="2", checkpoint="second")
    with pytest.raises(OutdatedQuery):
        write(broker, 2, run="1", checkpoint="first")
    assert not write(broker, 1, run="3", checkpoint="first"), "its markers are still there"


def test_a_checkpoint_that_is_older_than_what_was_written_is_refused(broker: Broker) -> None:
    """Its batches have the numbers of others: they would be left out."""
    for batch_id in range(3):
        assert write(broker, batch_id)
    with pytest.raises(OutdatedQuery, match=r"comes with batch 1, and has written batch 2"):
        write(broker, 1)


def test_many_runs_are_remembered(broker: Broker) -> None:
    """What is written beside an offset is limited; a broker refuses more."""
    runs = [f"{number:036}" for number in range(70)]
    for run in runs:
        with attempt(broker, run=run) as one:
            assert one.begin(0)
    with pytest.raises(OutdatedQuery):
        write(broker, 0, run=runs[-2])


def test_a_batch_that_is_cut_otherwise_is_not_taken_for_written(broker: Broker) -> None:
    """What another task has now would be missing, or be there twice, and nobody would know."""
    assert write(broker, 0)
    with attempt(broker) as again:
        assert not again.begin(0)
        again.check_repeated(3)
        with pytest.raises(
            OutdatedQuery, match="was written with 3 records and is repeated with 4"
        ):
            again.check_repeated(4)
