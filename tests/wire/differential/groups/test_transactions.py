"""Transactions: Apache Kafka and ours answer the same in every state, field by field.

Kafka writes markers behind its answer, so a scenario lets each end settle before it goes on;
what is asked in between is answered by both as states of their own in the unit tests.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from tests.deadlines import deadline_s
from tests.wire.differential.groups.test_groups import Member
from tests.wire.differential.harness import Peer, Scenario

from odradek.records.builder import RecordBatchBuilder

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
TIMEOUT_S = deadline_s(20)


class Owner(NamedTuple):
    """The id and epoch of a producer by the last answer to it."""

    name: str
    producer_id: int
    epoch: int

    def at(self, by: int) -> "Owner":
        return self._replace(epoch=self.epoch + by)

    @property
    def fields(self) -> dict[str, object]:
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }


def owner(peer: Peer, name: str, **fields: object) -> Owner:
    """A producer with its id, whatever has to be waited for."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        peer.quietly("find_coordinator", 4, coordinator_keys=(name,), key_type=1)
        answer = peer.quietly(
            "init_producer_id", 4, transactional_id=name, transaction_timeout_ms=60_000, **fields
        )
        if answer.error_code == 0:
            return Owner(name, answer.producer_id, answer.producer_epoch)
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)


def create(peer: Peer, name: str) -> None:
    # The records of these tests are years old: Kafka's retention took them, now and then.
    kept = {"name": "retention.ms", "value": "-1"}
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "configs": [kept]}
    peer.prepare("create_topics", 7, topics=[topic], timeout_ms=9000)
    peer.prepare("metadata", 12, topics=[{"name": name}])
    partitions = [{"partition_index": index, "timestamp": -1} for index in range(2)]
    asked = [{"name": name, "partitions": partitions}]
    peer.prepare("list_offsets", 5, replica_id=-1, topics=asked)


def add(peer: Peer, who: Owner, version: int, *topics: tuple[str, list[int]]) -> Any:
    wanted = [{"name": name, "partitions": partitions} for name, partitions in topics]
    if version < 4:
        fields = {f"v3_and_below_{key}": value for key, value in who.fields.items()}
        return peer.ask("add_partitions_to_txn", version, v3_and_below_topics=wanted, **fields)
    transaction = {**who.fields, "verify_only": False, "topics": wanted}
    return peer.ask("add_partitions_to_txn", version, transactions=[transaction])


def verify(peer: Peer, who: Owner, *topics: tuple[str, list[int]]) -> None:
    wanted = [{"name": name, "partitions": partitions} for name, partitions in topics]
    transaction = {**who.fields, "verify_only": True, "topics": wanted}
    peer.ask("add_partitions_to_txn", 4, transactions=[transaction])


def end(peer: Peer, who: Owner, version: int, committed: bool) -> Any:
    return peer.ask("end_txn", version, committed=committed, **who.fields)


def settle(peer: Peer, name: str) -> str:
    """Waits until nothing is on its way; returns the state."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = peer.quietly("describe_transactions", 0, transactional_ids=(name,))
        state = answer.transaction_states[0].transaction_state
        if not state.startswith("Prepare"):
            return state
        assert time.monotonic() < deadline, state
        time.sleep(0.02)


def batch(who: Owner, sequence: int = 0, transactional: bool = True) -> bytes:
    builder = RecordBatchBuilder(
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        base_sequence=sequence,
        is_transactional=transactional,
    )
    builder.append(1_700_000_000_000, b"k", b"v")
    return builder.build()


def test_who_gets_a_producer_id(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        owner(peer, "warm")
        for version in range(6):
            name = f"init-{version}"
            for timeout_ms in (0, -1, 900_001, 2**31 - 1):
                peer.ask(
                    "init_producer_id",
                    version,
                    transactional_id=name,
                    transaction_timeout_ms=timeout_ms,
                )
            peer.ask("init_producer_id", version, transactional_id="", transaction_timeout_ms=1)
            who = owner(peer, name)
            peer.ask(
                "init_producer_id", version, transactional_id=name, transaction_timeout_ms=1000
            )
            if version >= 3:
                for producer_id, epoch in (
                    (who.producer_id, who.epoch + 1),
                    (who.producer_id, who.epoch + 1),
                    (who.producer_id, who.epoch),
                    (who.producer_id, who.epoch + 7),
                    (who.producer_id + 9, who.epoch),
                    (who.producer_id, -1),
                    (-1, 3),
                ):
                    peer.ask(
                        "init_producer_id",
                        version,
                        transactional_id=name,
                        transaction_timeout_ms=1000,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                    )

    same_answers(scenario)


def test_who_may_add_partitions(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "adds")
        for version in range(6):
            who = owner(peer, f"adds-{version}")
            known = ("adds", [0, 1])
            add(peer, who._replace(name="nobody"), version, known)
            add(peer, who._replace(name=""), version, known)
            add(peer, who._replace(producer_id=who.producer_id + 99), version, known)
            add(peer, who.at(1), version, known)
            add(peer, who.at(-1), version, known)
            add(peer, who, version, ("adds", [0, 7]), ("none", [0]))
            add(peer, who, version)
            add(peer, who, version, known)
            add(peer, who, version, known)
            add(peer, who.at(1), version, known)
        verify(peer, who, ("adds", [0]))
        verify(peer, who.at(1), ("adds", [0]))
        verify(peer, who, ("adds", [7]), ("none", [0]))
        verify(peer, who._replace(name="nobody"), ("adds", [0]))
        verify(peer, who._replace(name=""), ("adds", [0]))
        other = owner(peer, "adds-other")
        verify(peer, other, ("adds", [0, 1]))
        peer.ask("add_partitions_to_txn", 3, v3_and_below_transactional_id="nobody")

    same_answers(scenario)


@pytest.mark.parametrize("version", range(6))
def test_how_transactions_end(same_answers: Check, version: int) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "ends")
        for first in (True, False):
            name = f"ends-{version}-{first}"
            who = owner(peer, name)
            for committed in (True, False):
                end(peer, who._replace(name=""), version, committed)
                end(peer, who._replace(name="nobody"), version, committed)
                end(peer, who._replace(producer_id=who.producer_id + 99), version, committed)
                end(peer, who.at(1), version, committed)
                end(peer, who.at(-1), version, committed)
            end(peer, who, version, True)
            add(peer, who, 5 if version >= 5 else 3, ("ends", [0]))
            end(peer, who.at(1), version, first)
            end(peer, who.at(-1), version, first)
            end(peer, who, version, first)
            peer.answers.append(peer.answers[-1]._replace(values=settle(peer, name)))
            for again in (first, not first):
                end(peer, who, version, again)
                settle(peer, name)
            peer.ask_until(_is_settled, "describe_transactions", 0, transactional_ids=(name,))

    same_answers(scenario)


def _is_settled(answer: Any) -> bool:
    return not answer.transaction_states[0].transaction_state.startswith("Prepare")


def test_an_empty_abort_and_a_taken_over_transaction(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "takes")
        who = owner(peer, "takes")
        end(peer, who, 4, False)
        end(peer, who, 5, False)
        settle(peer, "takes")
        end(peer, who.at(1), 5, False)
        settle(peer, "takes")
        end(peer, who.at(1), 5, False)
        end(peer, who.at(2), 5, True)
        add(peer, who.at(2), 5, ("takes", [0]))
        peer.ask("init_producer_id", 4, transactional_id="takes", transaction_timeout_ms=60_000)
        settle(peer, "takes")
        end(peer, who.at(2), 5, True)
        after = owner(peer, "takes")
        peer.answers.append(peer.answers[-1]._replace(values=after.epoch - who.epoch))

    same_answers(scenario)


def test_who_may_produce(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "writes")

        def produce(version: int, who: Owner, records: bytes, name: str | None) -> None:
            partition = {"index": 0, "records": records}
            topic: dict[str, object] = {"name": "writes", "partition_data": [partition]}
            if version < 13:
                peer.ask(
                    "produce",
                    version,
                    transactional_id=name,
                    acks=-1,
                    timeout_ms=5000,
                    topic_data=[topic],
                )

        for version in (3, 10, 11, 12):
            who = owner(peer, f"writes-{version}")
            produce(version, who, batch(who), who.name)
            if version == 12:
                end(peer, who, 5, True)
                settle(peer, who.name)
                who = who.at(1)
                produce(version, who.at(-1), batch(who.at(-1), 1), who.name)
            produce(version, who, batch(who), None)
            produce(version, who, batch(who), "nobody")
            produce(version, who, batch(who.at(1)), who.name)
            produce(version, who, batch(who._replace(producer_id=9999)), who.name)
            add(peer, who, 5 if version == 12 else 3, ("writes", [0]))
            produce(version, who, batch(who, 0, transactional=False), who.name)
            end(peer, who, 5 if version == 12 else 3, False)
            settle(peer, who.name)

    same_answers(scenario)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("has_data", [False, True])
def test_the_order_of_a_producers_batches(
    same_answers: Check, version: int, has_data: bool
) -> None:
    """Fails when a batch is taken before the one in front of it, or one that is refused is taken
    the next time; version 12 adds partitions to transactions by itself."""

    def scenario(peer: Peer) -> None:
        topic = f"order-{version}-{has_data}"
        create(peer, topic)

        def produce(who: Owner, sequence: int) -> None:
            partition = {"index": 0, "records": batch(who, sequence)}
            written = {"name": topic, "partition_data": [partition]}
            fields = {"transactional_id": who.name, "acks": -1, "timeout_ms": 5000}
            peer.ask("produce", version, topic_data=[written], **fields)

        if has_data:
            before = owner(peer, f"{topic}-before")
            add(peer, before, 3, (topic, [0]))
            produce(before, 0)
            end(peer, before, 3, True)
            settle(peer, before.name)
        for number, sequences in enumerate([(1, 0, 1), (3, 2, 1, 0), (0, 2, 1, 2)]):
            who = owner(peer, f"{topic}-{number}")
            if version < 12:
                produce(who, sequences[0])
                add(peer, who, 3, (topic, [0]))
            for sequence in sequences:
                produce(who, sequence)
            end(peer, who, 3 if version < 12 else 5, False)
            settle(peer, who.name)

    same_answers(scenario)


def test_a_sequence_number_that_an_aborted_transaction_had(same_answers: Check) -> None:
    """Fails when the retry of a batch is taken for another one since its transaction has ended: a
    client that gives numbers twice under one epoch has its second batch lost, here as there."""

    def scenario(peer: Peer) -> None:
        create(peer, "again")
        who = owner(peer, "again")
        partition = {"index": 0, "records": batch(who)}
        written = {"name": "again", "partition_data": [partition]}
        fields = {"transactional_id": who.name, "acks": -1, "timeout_ms": 5000}
        for committed in (False, True):
            add(peer, who, 3, ("again", [0]))
            peer.ask("produce", 11, topic_data=[written], **fields)
            end(peer, who, 3, committed)
            settle(peer, who.name)
        peer.ask("produce", 11, topic_data=[written], **fields)

    same_answers(scenario)


def test_offsets_in_transactions(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "offs")
        group = "offs-group"
        await_group(peer, group)

        def commit(version: int, who: Owner, **fields: object) -> None:
            partitions = [
                {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"},
                {"partition_index": 9, "committed_offset": 5, "committed_metadata": None},
            ]
            topics = [
                {"name": "offs", "partitions": partitions},
                {"name": "none", "partitions": partitions[:1]},
            ]
            asked = {"group_id": group, "topics": topics, **who.fields, **fields}
            peer.ask("txn_offset_commit", version, **asked)

        for version in range(6):
            who = owner(peer, f"offs-{version}")
            commit(version, who)
            commit(version, who, group_id="")
            commit(version, who.at(1))
            commit(version, who._replace(name="nobody"))
            if version < 5:
                known = min(version, 4)
                peer.ask("add_offsets_to_txn", known, group_id=group, **who.at(1).fields)
                peer.ask("add_offsets_to_txn", known, group_id=group, **who.at(-1).fields)
                nobody = who._replace(name="nobody").fields
                peer.ask("add_offsets_to_txn", known, group_id=group, **nobody)
                peer.ask("add_offsets_to_txn", known, group_id=group, **who.fields)
                commit(version, who)
            if version >= 3:
                commit(version, who, member_id="m", generation_id=3)
                commit(version, who, generation_id=3)
            asked = [
                {
                    "group_id": group,
                    "topics": [{"name": "offs", "partition_indexes": [0, 1]}],
                }
            ]
            for stable in (False, True):
                peer.ask("offset_fetch", 8, groups=asked, require_stable=stable)
            end(peer, who, 5 if version == 5 else 3, version % 2 == 0)
            settle(peer, who.name)
            peer.ask_until(
                lambda answer: not answer.groups[0].topics[0].partitions[0].error_code,
                "offset_fetch",
                8,
                groups=asked,
                require_stable=True,
            )

    same_answers(scenario)


def test_markers_by_request(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "marks")
        who = owner(peer, "marks")

        def write(version: int, epoch: int, coordinator_epoch: int, *topics: Any) -> None:
            marker = {
                "producer_id": who.producer_id,
                "producer_epoch": epoch,
                "transaction_result": False,
                "coordinator_epoch": coordinator_epoch,
                "topics": [{"name": name, "partition_indexes": each} for name, each in topics],
            }
            if version >= 2:
                marker["transaction_version"] = 2
            peer.ask("write_txn_markers", version, markers=[marker])

        for version in (1, 2):
            write(version, 3 * version, 0, ("marks", [0, 7]), ("none", [0]))
            write(version, 3 * version, 0, ("marks", [0]))
            write(version, 3 * version - 1, 0, ("marks", [0]))
            write(version, 3 * version + 1, 5, ("marks", [0]))
            write(version, 3 * version + 2, 4, ("marks", [0]))
            write(version, 3 * version, 0)
            peer.ask("write_txn_markers", version, markers=[])
        peer.ask("describe_producers", 0, topics=[{"name": "marks", "partition_indexes": [1, 7]}])

    same_answers(scenario)


def test_markers_of_nobody(same_answers: Check) -> None:
    """If this fails, a marker that no producer can have written stands in a log."""

    def scenario(peer: Peer) -> None:
        create(peer, "nobodys")
        who = owner(peer, "nobodys")
        for producer_id, epoch in ((-1, 0), (-2, 0), (who.producer_id, -1), (who.producer_id, -2)):
            for version in (1, 2):
                marker = {
                    "producer_id": producer_id,
                    "producer_epoch": epoch,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": [{"name": "nobodys", "partition_indexes": [0]}],
                }
                peer.ask("write_txn_markers", version, markers=[marker])
                elsewhere = {**marker, "topics": [{"name": "nowhere", "partition_indexes": [0]}]}
                peer.ask("write_txn_markers", version, markers=[elsewhere])
                beside = {**elsewhere, "topics": [*marker["topics"], *elsewhere["topics"]]}
                peer.ask("write_txn_markers", version, markers=[beside])
        peer.ask(
            "list_offsets",
            7,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": "nobodys", "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        )

    same_answers(scenario)


def test_what_tools_see(same_answers: Check) -> None:
    def scenario(peer: Peer) -> None:
        create(peer, "sees")
        idle, busy = owner(peer, "sees-idle"), owner(peer, "sees-busy")
        add(peer, busy, 3, ("sees", [0, 1]))
        for name in (idle.name, busy.name, "nobody", ""):
            peer.ask("describe_transactions", 0, transactional_ids=(name,))
        peer.ask("describe_transactions", 0, transactional_ids=())
        for version in range(3):
            for states in ((), ("Ongoing",), ("Empty", "Nonsense"), ("ongoing",), ("Dead",)):
                peer.ask(
                    "list_transactions",
                    version,
                    state_filters=states,
                    producer_id_filters=(idle.producer_id, busy.producer_id),
                )
        for pattern in ("sees-.*", "sees", "", "(", "nobody"):
            peer.ask(
                "list_transactions",
                2,
                state_filters=(),
                producer_id_filters=(idle.producer_id, busy.producer_id),
                transactional_id_pattern=pattern,
            )
        end(peer, busy, 3, False)
        settle(peer, busy.name)

    same_answers(scenario)


STEPS = ("nothing", "added", "written", "offsets", "decided")


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("step", STEPS)
def test_two_producers_with_one_id(same_answers: Check, step: str, version: int) -> None:
    """Fails when what one of them may still do, and is told, is not what Kafka says; the other
    has come when the first had got as far as `step`."""

    def scenario(peer: Peer) -> None:
        topic, name = f"two-{step}-{version}", f"two-{step}-{version}"
        group = f"{name}-group"
        create(peer, topic)
        await_group(peer, group)
        first = owner(peer, name)
        steps = STEPS[1 : STEPS.index(step) + 1]
        if "added" in steps:
            add(peer, first, version, (topic, [0]))
        if "written" in steps:
            write(peer, first, topic, version)
        if "offsets" in steps:
            commit_offset(peer, first, group, topic, version)
        if "decided" in steps:
            end(peer, first, version, True)
            settle(peer, name)
        second = owner(peer, name)
        settle(peer, name)
        write(peer, first, topic, version)
        commit_offset(peer, first, group, topic, version)
        add(peer, first, version, (topic, [1]))
        for committed in (True, False):
            end(peer, first, version, committed)
        peer.ask("init_producer_id", 4, transaction_timeout_ms=1000, **first.fields)
        # The other is not disturbed by any of that.
        add(peer, second, version, (topic, [0, 1]))
        write(peer, second, topic, version)
        commit_offset(peer, second, group, topic, version)
        end(peer, second, version, True)
        settle(peer, name)
        await_stable(peer, topic)
        peer.ask("offset_fetch", 8, groups=fetched(group, topic), require_stable=True)

    same_answers(scenario)


def test_a_topic_that_is_deleted_under_a_transaction(same_answers: Check) -> None:
    """Fails when a partition that is gone keeps its transaction from ending."""

    def scenario(peer: Peer) -> None:
        for version in (3, 5):
            kept, gone, name = (f"{stem}-{version}" for stem in ("kept", "gone", "deletes"))
            create(peer, kept)
            create(peer, gone)
            who = owner(peer, name)
            add(peer, who, version, (kept, [0]), (gone, [0, 1]))
            write(peer, who, kept, version)
            write(peer, who, gone, version)
            peer.ask("delete_topics", 5, topic_names=(gone,), timeout_ms=9000)
            peer.ask_until(
                lambda answer: answer.topics[0].error_code == UNKNOWN_TOPIC,
                "metadata",
                12,
                topics=[{"name": gone}],
                allow_auto_topic_creation=False,
            )
            end(peer, who, version, True)
            settle(peer, name)
            peer.ask("describe_transactions", 0, transactional_ids=(name,))
            end(peer, who, version, True)
            await_stable(peer, kept)

    same_answers(scenario)


def test_offsets_of_a_group_that_has_moved_on(same_answers: Check) -> None:
    """Fails when a member of the past commits by a transaction, or one of today cannot."""

    def scenario(peer: Peer) -> None:
        create(peer, "moves")
        group = "moves-group"
        await_group(peer, group)
        member = Member(peer, group).settle()
        for version in (3, 5):
            who = owner(peer, f"moves-{version}")
            if version < 5:
                peer.ask("add_offsets_to_txn", 3, group_id=group, **who.fields)
            good = {"member_id": member.member_id, "generation_id": member.generation_id}
            for wrong in (
                {"generation_id": member.generation_id - 1},
                {"generation_id": member.generation_id + 1},
                {"member_id": "stranger"},
                {"member_id": ""},
                {"group_instance_id": "instance"},
            ):
                commit_offset(peer, who, group, "moves", version, **{**good, **wrong})
            commit_offset(peer, who, group, "moves", version, **good)
            member.settle()
            commit_offset(peer, who, group, "moves", version, **good)
            end(peer, who, version, True)
            settle(peer, who.name)

    same_answers(scenario)


UNKNOWN_TOPIC = 3


def write(peer: Peer, who: Owner, topic: str, version: int) -> None:
    partition = {"index": 0, "records": batch(who)}
    peer.ask(
        "produce",
        12 if version >= 5 else 11,
        transactional_id=who.name,
        acks=-1,
        timeout_ms=5000,
        topic_data=[{"name": topic, "partition_data": [partition]}],
    )


def commit_offset(
    peer: Peer, who: Owner, group: str, topic: str, version: int, **fields: object
) -> None:
    """TxnOffsetCommit, with what the older protocol has before it unless a member speaks."""
    if version < 5 and not fields:
        peer.ask("add_offsets_to_txn", 3, group_id=group, **who.fields)
    place = {"partition_index": 0, "committed_offset": who.epoch + 5, "committed_metadata": ""}
    asked = {"group_id": group, "topics": [{"name": topic, "partitions": [place]}]}
    peer.ask("txn_offset_commit", version, **{**asked, **who.fields, **fields})


def fetched(group: str, topic: str) -> list[dict[str, object]]:
    return [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0, 1]}]}]


def await_group(peer: Peer, group: str) -> None:
    """A group's coordinator is found and has loaded."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = peer.quietly("find_coordinator", 4, coordinator_keys=(group,), key_type=0)
        asked = peer.quietly("offset_fetch", 8, groups=[{"group_id": group, "topics": None}])
        if not found.coordinators[0].error_code and not asked.groups[0].error_code:
            return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def await_stable(peer: Peer, topic: str) -> None:
    """Readers are not held up: the last stable offset is the end."""
    partitions = [{"partition_index": index, "timestamp": -1} for index in range(2)]
    asked = [{"name": topic, "partitions": partitions}]
    ends = peer.ask("list_offsets", 5, replica_id=-1, isolation_level=0, topics=asked)
    offsets = [each.offset for each in ends.topics[0].partitions]
    peer.ask_until(
        lambda answer: [each.offset for each in answer.topics[0].partitions] == offsets,
        "list_offsets",
        5,
        replica_id=-1,
        isolation_level=1,
        topics=asked,
    )
