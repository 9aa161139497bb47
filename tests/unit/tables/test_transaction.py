"""A batch is written once under a query's name, whoever repeats it and whenever it died."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from odradek import Broker
from odradek.client import Admin
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.errors import KafkaError
from odradek.clock import ManualClock
from odradek.model import TopicPartition
from odradek.tables.errors import OutdatedQuery
from odradek.tables.write.batch_commit import BatchCommit, Cut
from odradek.tables.write.query_run import QueryRun, is_bookkeeping
from odradek.tables.write.transaction import BatchTransaction, Content, Share

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


def query_run(*, topic: str = "out", run: str = "run-1", checkpoint: str = "c") -> QueryRun:
    return QueryRun("q", checkpoint, run, TopicPartition(topic, 0))


def attempt(
    broker: Broker, task: int = 0, *, kind: type[BatchTransaction] = BatchTransaction, **who: str
) -> BatchTransaction:
    return kind(broker.bootstrap_servers, query_run(**who), task, timeout_ms=TIMEOUT_MS)


def driver(broker: Broker, *, may_lack_records: bool = False, **who: str) -> BatchCommit:
    return BatchCommit(
        broker.bootstrap_servers,
        query_run(**who),
        timeout_ms=TIMEOUT_MS,
        may_lack_records=may_lack_records,
    )


def prepare(broker: Broker, batch_id: int, task: int, records: int, **who: str) -> Share:
    """A task's part of a batch, a record a number."""
    if records == 0:
        return Share(task, Content())
    with attempt(broker, task, **who) as one:
        if not one.begin(batch_id):
            return one.repeated(Content(records))
        one.add_partitions([MARKER])
        return one.prepare(batch_id, Content(records))


def write(broker: Broker, batch_id: int, cut: Sequence[int] = (3,), **who: str) -> bool:
    """A whole batch, cut into tasks of so many records; whether all of it was new."""
    shares = [prepare(broker, batch_id, *piece, **who) for piece in enumerate(cut)]
    driver(broker, **who).commit(batch_id, shares)
    return not any(share.is_written for share in shares)


@pytest.mark.parametrize(
    ("group_id", "expected"),
    [
        (query_run().marker_group(17), True),
        (query_run().claim_group, True),
        (query_run().cut_group, True),
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
    with attempt(broker) as again:
        assert not again.begin(7)
        assert again.written == Content(3)


def test_a_share_is_not_written_before_the_driver_commits(broker: Broker) -> None:
    """A batch that is cut anew would find some of its rows there already, in another task."""
    prepare(broker, 0, 0, 3)
    with attempt(broker, run="started again") as again:
        assert again.begin(0)


def test_an_older_attempt_cannot_be_committed(broker: Broker) -> None:
    """Two attempts at one share would both be visible."""
    older = prepare(broker, 0, 0, 3)
    newer = prepare(broker, 0, 0, 3)
    with pytest.raises(OutdatedQuery, match="another attempt has taken a task over"):
        driver(broker).commit(0, [older])
    driver(broker).commit(0, [newer])
    with attempt(broker) as again:
        assert not again.begin(0)


def test_a_task_that_fails_takes_back_what_it_began(broker: Broker) -> None:
    """Readers of what is committed would wait for the transaction to time out."""
    with attempt(broker) as failing:
        assert failing.begin(0)
        failing.add_partitions([MARKER])

    async def state() -> str:
        async with Admin(broker.bootstrap_servers) as admin:
            found = (await admin.describe_transactions(["spark.c.out.0"]))["spark.c.out.0"]
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
            slow.prepare(0, Content(3))

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
        share = newer.prepare(1, Content(3))
    with pytest.raises(OutdatedQuery, match="query q was started again"):
        driver(broker, run="older").commit(1, [share])
    driver(broker, run="newer").commit(1, [share])
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
    prepare(broker, 1, 0, 3, run="older")
    assert write(broker, 1, run="newer")


def test_queries_of_one_name_that_write_to_different_topics_do_not_meet(broker: Broker) -> None:
    """Jobs name their queries alike, `main`, and would shut each other out for ever."""
    broker.create_topic("other")
    elsewhere = {"run": "there", "topic": "other", "checkpoint": "d"}
    with attempt(broker, run="here") as here, attempt(broker, **elsewhere) as there:
        assert here.begin(0)
        assert there.begin(0)
        shares = here.prepare(0, Content(3)), there.prepare(0, Content(3))
    driver(broker, run="here").commit(0, [shares[0]])
    driver(broker, **elsewhere).commit(0, [shares[1]])
    assert write(broker, 1, run="here")


def test_a_batch_that_may_be_in_another_topic_is_refused(broker: Broker) -> None:
    """A query that was started with another topic, before its last batch was done, had it in
    both."""
    broker.create_topic("other")
    write(broker, 3)
    for batch_id in (2, 3):
        with pytest.raises(OutdatedQuery, match=r"batch 3 was written to out.+Start .+ with out"):
            write(broker, batch_id, run="run-2", topic="other")
    assert not write(broker, 3, run="run-3")
    assert write(broker, 4, run="run-4", topic="other")
    with pytest.raises(OutdatedQuery, match="batch 4 was written to other"):
        write(broker, 4, run="run-5")
    broker.delete_topic("other")
    until_forgotten(broker, query_run().cut_group, "other")
    assert write(broker, 4, run="run-6")


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
    """The text beside an offset is limited; a broker refuses more."""
    runs = [f"{number:036}" for number in range(70)]
    for run in runs:
        with attempt(broker, run=run) as one:
            assert one.begin(0)
    with pytest.raises(OutdatedQuery):
        write(broker, 0, run=runs[-2])


def test_a_share_that_is_cut_otherwise_is_not_taken_for_written(broker: Broker) -> None:
    """The records that another task has now would be missing, or be there twice, and nobody would
    know."""
    assert write(broker, 0)
    with attempt(broker) as again:
        assert not again.begin(0)
        assert again.repeated(Content(3)) == Share(0, Content(3), is_written=True)
        assert again.repeated(Content(2), may_lack_records=True).is_written, (
            "retention took one of them"
        )
        for records, lenient in ((4, False), (4, True), (2, False)):
            with pytest.raises(OutdatedQuery, match=rf"with 3 records .* repeated with {records}"):
                again.repeated(Content(records), may_lack_records=lenient)


class DiesAfter(BatchCommit):
    """A driver that dies when so many shares are committed."""

    committed = 0

    def _endings(self, cluster, shares, *, commit: bool):
        endings = super()._endings(cluster, shares[: self.committed], commit=commit)

        async def end_some_and_die() -> None:
            await asyncio.gather(*endings)
            raise Died

        return [end_some_and_die()]


class Died(Exception):
    """The driver is gone."""


def die_after(
    broker: Broker, committed: int, batch_id: int, cut: Sequence[int], **who: str
) -> None:
    """A run commits some shares of a batch, and dies."""
    shares = [prepare(broker, batch_id, *piece, **who) for piece in enumerate(cut)]
    dying = DiesAfter(
        broker.bootstrap_servers, query_run(**who), timeout_ms=TIMEOUT_MS, may_lack_records=False
    )
    dying.committed = committed
    with pytest.raises(Died):
        dying.commit(batch_id, shares)


@pytest.mark.parametrize("again", [(4, 2), (6,), (1, 1, 1, 1, 1, 1), (2, 2, 2, 0)])
def test_a_batch_of_which_nothing_is_committed_may_be_cut_anew(
    broker: Broker, again: Sequence[int]
) -> None:
    """A query that lost its Spark could not be started with other cores than it had."""
    die_after(broker, 0, 0, (2, 2, 2))
    assert write(broker, 0, again, run="run-2")
    assert open_transactions(broker) == []
    assert write(broker, 1, again, run="run-2")


@pytest.mark.parametrize("again", [(4, 2), (6,), (3, 3), (2, 1, 3), (2, 2, 2, 0)])
def test_a_batch_that_is_committed_in_part_must_not_be_cut_anew(
    broker: Broker, again: Sequence[int]
) -> None:
    """Rows would come to a task that has not written them, and be there twice."""
    die_after(broker, 1, 0, (2, 2, 2))
    with pytest.raises(OutdatedQuery, match=r"cut into other tasks|is repeated with"):
        write(broker, 0, again, run="run-2")
    assert not write(broker, 0, (2, 2, 2), run="run-3"), "as it was it goes on"
    assert [write(broker, 0, (2, 2, 2), run="run-4"), write(broker, 1, again, run="run-4")] == [
        False,
        True,
    ]


def test_a_batch_that_lacks_deleted_records_goes_on_where_that_is_allowed(broker: Broker) -> None:
    """Retention would stop a query for good that died in the middle of a commit."""
    die_after(broker, 1, 0, (3, 3))
    shares = [Share(0, Content(1), is_written=True), prepare(broker, 0, 1, 2, run="run-2")]
    with pytest.raises(OutdatedQuery, match="cut into other tasks"):
        driver(broker, run="run-2").commit(0, shares)
    driver(broker, run="run-2", may_lack_records=True).commit(0, shares)


def test_what_lacks_nothing_has_to_be_the_same(broker: Broker) -> None:
    """With `failOnDataLoss=false` as many other rows were taken for those that were written, and in
    the topic never."""
    die_after(broker, 1, 0, (3, 3))
    with attempt(broker, run="run-2") as again:
        assert not again.begin(0)
        with pytest.raises(OutdatedQuery, match="or with others"):
            again.repeated(Content(3, 5), may_lack_records=True)
    for records in (2, 3):
        other = prepare(broker, 0, 1, records, run="run-2")
        shares = [Share(0, Content(3, 5), is_written=True), other]
        lenient = driver(broker, run="run-2", may_lack_records=True)
        if records == 3:
            with pytest.raises(OutdatedQuery, match="cut into other tasks"):
                lenient.commit(0, shares)
        else:
            lenient.abort(shares)


def test_a_batch_that_lacks_records_is_still_cut_as_it_was(broker: Broker) -> None:
    """Fewer records in all, and more in one task: rows have moved to it that are there already."""
    die_after(broker, 1, 0, (3, 3))
    shares = [Share(0, Content(1), is_written=True), prepare(broker, 0, 1, 4, run="run-2")]
    with pytest.raises(OutdatedQuery, match="cut into other tasks"):
        driver(broker, run="run-2", may_lack_records=True).commit(0, shares)


def test_very_many_tasks_are_compared_where_records_may_be_missing(broker: Broker) -> None:
    """The text that a broker keeps beside an offset is limited, and a cut of thousands would be
    refused."""
    records = [10_000_000_000 + task for task in range(10_000)]
    cut = Cut.of("run", _shares(records))
    assert len(str(cut)) < 4096
    assert Cut.read(CommittedOffset(1, str(cut))) == cut
    fewer, moved = list(records), list(records)
    fewer[7_000] = 0
    moved[7_000], moved[0] = 0, 2 * records[0]
    found = [
        cut.holds(Cut.of("r", _shares(now)), may_lack_records=True)
        for now in (records, fewer, moved)
    ]
    assert found == [True, True, False]


def _shares(records: Sequence[int]) -> list[Share]:
    return [Share(task, Content(count)) for task, count in enumerate(records)]


def test_a_share_of_as_many_other_records_is_not_taken_for_written(broker: Broker) -> None:
    """A shuffle that deals rows out one by one gives every task as many, whichever they are."""
    for task, checksum in enumerate((17, 4)):
        with attempt(broker, task) as one:
            assert one.begin(0)
            share = one.prepare(0, Content(3, checksum))
        if task == 0:
            driver(broker).commit(0, [share, Share(1, Content(3, 4))])
    with attempt(broker, run="run-2") as again:
        assert not again.begin(0)
        assert again.repeated(Content(3, 17)).is_written
        with pytest.raises(OutdatedQuery, match="or with others"):
            again.repeated(Content(3, 18))
    swapped = [Share(0, Content(3, 17), is_written=True), Share(1, Content(3, 5))]
    with pytest.raises(OutdatedQuery, match="cut into other tasks"):
        driver(broker, run="run-2").commit(0, swapped)


def test_what_a_run_left_open_before_it_knew_its_cut_is_taken_back(broker: Broker) -> None:
    """It had more tasks than its successor has: readers would wait for these to be timed out."""
    for task in range(4):
        prepare(broker, 0, task, 1, run="four-cores")
    assert write(broker, 0, (4,), run="one-core")
    assert open_transactions(broker) == []


def test_a_driver_that_is_held_up_does_not_write_its_cut_over_a_newer_one(broker: Broker) -> None:
    """The records that the newer one has committed in part would be there again: another run would
    compare its batch with the wrong cut, or never find the one there was."""
    held_up = [prepare(broker, 0, 0, 6, run="older")]

    class HeldUp(BatchCommit):
        async def _write_cut(self, manager, note) -> None:
            await asyncio.to_thread(die_after, broker, 2, 0, (2, 2, 2), run="newer")
            await super()._write_cut(manager, note)

    older = query_run(run="older")
    late = HeldUp(broker.bootstrap_servers, older, timeout_ms=TIMEOUT_MS, may_lack_records=False)
    with pytest.raises(OutdatedQuery, match="another attempt has taken"):
        late.commit(0, held_up)
    with pytest.raises(OutdatedQuery, match=r"cut into other tasks|is repeated with"):
        write(broker, 0, (6,), run="run-3")
    assert not write(broker, 0, (2, 2, 2), run="run-4")


def test_a_copy_of_a_checkpoint_under_another_name_writes_nothing_twice(broker: Broker) -> None:
    """Two queries that go on from one place have the same records."""
    ours = [prepare(broker, 0, 0, 3)]
    copied = QueryRun("copy", "c", "copied", MARKER)
    with BatchTransaction(broker.bootstrap_servers, copied, 0, timeout_ms=TIMEOUT_MS) as one:
        assert one.begin(0)
        share = one.prepare(0, Content(3))
    with pytest.raises(OutdatedQuery):
        driver(broker).commit(0, ours)
    BatchCommit(
        broker.bootstrap_servers, copied, timeout_ms=TIMEOUT_MS, may_lack_records=False
    ).commit(0, [share])
    assert not write(broker, 0, run="run-2")


def test_a_topic_that_was_made_anew_gets_the_batch_that_is_repeated(broker: Broker) -> None:
    """The notes about the old one would leave it out."""
    die_after(broker, 1, 0, (2, 2))
    broker.delete_topic("out")
    until_forgotten(broker, query_run().marker_group(0))
    broker.create_topic("out")
    assert write(broker, 0, (1, 3), run="run-2")
    assert not write(broker, 0, (1, 3), run="run-3")


def until_forgotten(broker: Broker, group_id: str, topic: str = "out") -> None:
    """The coordinator removes the offsets of a deleted topic after its deletion is answered."""

    async def committed() -> bool:
        async with Admin(broker.bootstrap_servers) as admin:
            found = (await admin.list_group_offsets([group_id]))[group_id]
        assert not isinstance(found, KafkaError)
        return any(part.topic == topic for part in found)

    for _ in range(400):
        if not asyncio.run(committed()):
            return
    raise AssertionError(f"offsets of {group_id} are still there")


def test_what_is_given_up_is_taken_back(broker: Broker) -> None:
    """Readers of what is committed would wait for the transactions to time out."""
    shares = [prepare(broker, 0, *piece) for piece in enumerate((3, 0, 2))]
    assert len(open_transactions(broker)) == 2
    # One of them is refused.
    driver(broker).abort([Share(0, Content(3), (4711, 0)), *shares])
    assert open_transactions(broker) == []


def test_a_late_driver_of_an_old_run_commits_nothing(broker: Broker) -> None:
    """The newer run has other tasks: what the older one left open would be there beside it."""
    late = [prepare(broker, 0, *piece) for piece in enumerate((2, 2, 2))]
    assert write(broker, 0, (6,), run="newer")
    with pytest.raises(OutdatedQuery, match="query q was started again"):
        driver(broker).commit(0, late)
    driver(broker).abort(late)
    assert open_transactions(broker) == []


def open_transactions(broker: Broker) -> list[str]:
    """The transactional ids of transactions that are under way."""

    async def ask() -> list[str]:
        async with Admin(broker.bootstrap_servers) as admin:
            found = await admin.list_transactions(states=["Ongoing"])
        return sorted(each.transactional_id for listed in found.values() for each in listed)

    return asyncio.run(ask())
