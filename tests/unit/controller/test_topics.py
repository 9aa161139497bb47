"""Topics are created, deleted and grown by Kafka's rules, and refused with its codes."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from odradek.config import ConfigSource
from odradek.controller import (
    CreatableTopic,
    PartitionsRequest,
    TopicReference,
)
from odradek.errors import BrokerError, ErrorCode
from odradek.metadata import ListenerStage, MetadataDelta
from odradek.model import NO_LEADER, TopicPartition


def test_a_topic_is_usable_when_the_answer_comes(kit: Any) -> None:
    """Its id, counts and settings are answered, and the published image has leaders."""
    (result,) = kit.create(CreatableTopic("a", 3, 1, configs={"retention.ms": "5"}))
    assert result.error_code is ErrorCode.NONE
    topic = kit.cache.image.topics["a"]
    assert result.topic_id == topic.topic_id
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert [partition.leader for partition in topic.partitions] == [1, 1, 1]
    configs = {entry.name: entry for entry in result.configs}
    assert configs["retention.ms"].value == "5"
    assert configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert configs["segment.bytes"].source is ConfigSource.DEFAULT_CONFIG


def test_minus_one_takes_the_brokers_defaults(kit_with: Any) -> None:
    """Partitions and replication factor may be left to the broker."""
    kit = kit_with({"num.partitions": "4"})
    (result,) = kit.create(CreatableTopic("a"))
    assert (result.num_partitions, result.replication_factor) == (4, 1)


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (CreatableTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("there_is"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("there.is"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("a", -2), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("a", 2_000_000_000), ErrorCode.POLICY_VIOLATION),
        (CreatableTopic("a", 10_001), ErrorCode.POLICY_VIOLATION),
        (CreatableTopic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("a", 1, -1, [(0, [1])]), ErrorCode.INVALID_REQUEST),
        (CreatableTopic("a", -1, -1, [(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("a", -1, -1, [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("a", -1, -1, [(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("a", -1, -1, [(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("a", -1, -1, [(0, [1]), (1, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("a", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("a", configs={"segment.bytes": "x"}), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("a", configs={"segment.bytes": None}), ErrorCode.INVALID_CONFIG),
    ],
)
def test_refuses(kit: Any, requested: CreatableTopic, code: ErrorCode) -> None:
    """Each with the code that clients tell the faults apart by, and a message."""
    kit.must_create("there_is")
    (result,) = kit.create(requested)
    assert result.error_code is code
    assert result.message
    assert set(kit.cache.image.topics) == {"there_is"}


def test_one_refused_topic_does_not_stop_the_others(kit: Any) -> None:
    """Results stand in the order of the request; a name given twice is refused twice."""
    requests = [CreatableTopic(name) for name in ("b", "a", "!", "a", "c")]
    results = kit.create(*requests)
    assert [result.name for result in results] == ["b", "a", "!", "a", "c"]
    assert [result.error_code for result in results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]


def test_names_that_metrics_confuse_are_refused_within_a_request_and_after_a_deletion_free(
    kit: Any,
) -> None:
    """`a.b` and `a_b` in one request; once `a_b` is gone, `a.b` may come."""
    first, second = kit.create(CreatableTopic("a_b"), CreatableTopic("a.b"))
    assert first.error_code is ErrorCode.NONE
    assert second.error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    kit.ask(kit.controller.delete_topics, [TopicReference("a_b")], 1000)
    kit.must_create("a.b")


def test_validate_only_changes_nothing(kit: Any) -> None:
    """Tools try first; the answer is as if it had been done."""
    (result,) = kit.create(CreatableTopic("a", 2, 1), validate_only=True)
    assert result.error_code is ErrorCode.NONE
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert result.configs
    assert kit.cache.image.topic("a") is None


def test_a_manual_assignment_is_kept(kit: Any) -> None:
    """The operator's word, partition by partition."""
    (result,) = kit.create(CreatableTopic("a", -1, -1, [(1, [1]), (0, [1])]))
    assert (result.num_partitions, result.replication_factor) == (2, 1)


def test_a_policy_may_refuse(kit_with: Any) -> None:
    """POLICY_VIOLATION with the policy's own words."""

    def policy(requested: CreatableTopic) -> None:
        raise BrokerError(ErrorCode.POLICY_VIOLATION, "not on Fridays")

    (result,) = kit_with(policy=policy).create(CreatableTopic("a"))
    assert (result.error_code, result.message) == (ErrorCode.POLICY_VIOLATION, "not on Fridays")


def test_a_partition_whose_log_did_not_open_does_not_hold_the_answer(kit: Any) -> None:
    """It is offline; waiting would not open it."""

    def listener(delta: MetadataDelta) -> list[TopicPartition]:
        return [TopicPartition(topic.name, 0) for topic in delta.topics_added]

    kit.store.subscribe(ListenerStage.REPLICAS, listener)
    (result,) = kit.create(CreatableTopic("a", 1, 1))
    assert result.error_code is ErrorCode.NONE
    assert kit.cache.image.topics["a"].partitions[0].leader == NO_LEADER


def test_internal_topics_get_their_own_shape(kit_with: Any) -> None:
    """The group coordinator counts on 50 compacted partitions."""
    kit = kit_with({"offsets.topic.replication.factor": "1"})
    names = ["__consumer_offsets", "plain", "plain"]
    results = kit.ask(kit.controller.auto_create_topics, names, 1000)
    assert [(r.name, r.num_partitions, r.error_code) for r in results] == [
        ("__consumer_offsets", 50, ErrorCode.NONE),
        ("plain", 1, ErrorCode.NONE),
    ]
    assert kit.cache.image.topics["__consumer_offsets"].is_internal
    configs = kit.cache.image.topic_config("__consumer_offsets")
    assert configs["cleanup.policy"] == "compact"


def test_it_is_told_why_an_internal_topic_cannot_be_created(
    kit_with: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients that wait for their coordinator are not told, and ask ten times a second."""
    kit = kit_with({"transaction.state.log.replication.factor": "3"})
    for _ in range(3):
        kit.ask(kit.controller.auto_create_topics, ["__transaction_state", "a" * 250], 1000)
    (message,) = caplog.messages
    assert message.startswith("__transaction_state cannot be created: INVALID_REPLICATION_FACTOR: ")


def test_topics_are_deleted_by_name_and_by_id(kit: Any) -> None:
    """And unknown ones are told apart by how they were named."""
    kit.must_create("a")
    kit.must_create("b")
    by_id = TopicReference(None, kit.cache.image.topics["b"].topic_id)
    asked = [TopicReference("a"), by_id, TopicReference("c"), TopicReference(None, UUID(int=77))]
    results = kit.ask(kit.controller.delete_topics, asked, 1000)
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("c", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert not kit.cache.image.topics


def test_a_topic_named_twice_in_two_ways_is_not_deleted(kit: Any) -> None:
    """Name and id of the same topic contradict nobody, but Kafka refuses both."""
    kit.must_create("a")
    by_id = TopicReference(None, kit.cache.image.topics["a"].topic_id)
    results = kit.ask(kit.controller.delete_topics, [TopicReference("a"), by_id], 1000)
    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}
    assert kit.cache.image.topic("a") is not None


def test_deletion_may_be_switched_off(kit_with: Any) -> None:
    """delete.topic.enable=false protects everything."""
    kit = kit_with({"delete.topic.enable": "false"})
    kit.must_create("a")
    (result,) = kit.ask(kit.controller.delete_topics, [TopicReference("a")], 1000)
    assert result.error_code is ErrorCode.TOPIC_DELETION_DISABLED


def test_a_request_for_very_many_partitions_is_refused_as_a_whole(kit: Any) -> None:
    """If this fails, one request stops all others for seconds."""
    results = kit.create(CreatableTopic("a", 5_000), CreatableTopic("b", 5_001))
    assert {each.error_code for each in results} == {ErrorCode.POLICY_VIOLATION}
    assert kit.cache.image.topics.keys().isdisjoint({"a", "b"})


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ([CreatableTopic("a", 9_999)], ErrorCode.NONE),
        ([CreatableTopic("a", 10_000)], ErrorCode.POLICY_VIOLATION),
        ([CreatableTopic("a", 5_000), CreatableTopic("b", 4_998)], ErrorCode.NONE),
        ([CreatableTopic("a", 5_000), CreatableTopic("b", 4_999)], ErrorCode.POLICY_VIOLATION),
        ([CreatableTopic("a", 9_998, configs={"retention.ms": "1"})], ErrorCode.NONE),
        ([CreatableTopic("a", 9_999, configs={"retention.ms": "1"})], ErrorCode.POLICY_VIOLATION),
        ([CreatableTopic(f"a{index}") for index in range(5_000)], ErrorCode.NONE),
        ([CreatableTopic(f"a{index}") for index in range(5_001)], ErrorCode.POLICY_VIOLATION),
    ],
)
def test_a_request_for_very_many_records_is_refused_as_a_whole(
    kit: Any, topics: list[CreatableTopic], code: ErrorCode
) -> None:
    """If this fails, one request of very many small topics stops all others for seconds."""
    results = kit.ask(kit.controller.create_topics, topics, 1000, validate_only=True)
    assert {each.error_code for each in results} == {code}
    if code is not ErrorCode.NONE:
        message = "Unable to perform excessively large batch operation."
        assert {each.message for each in results} == {message}


def test_topics_that_are_refused_need_no_records(kit: Any) -> None:
    """If this fails, a request is refused for topics that it would not create."""
    kit.must_create("there")
    topics = [CreatableTopic(name) for name in ("there", "twice", "twice")]
    topics += [CreatableTopic("none", 0), CreatableTopic("a", 9_999)]
    results = kit.ask(kit.controller.create_topics, topics, 1000, validate_only=True)
    assert [each.error_code for each in results] == [
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.NONE,
    ]


def test_topics_that_are_named_twice_do_not_count(kit: Any) -> None:
    """If this fails, a request is refused for partitions that it would not create."""
    twice = CreatableTopic("a", 6_000)
    results = kit.create(twice, twice, CreatableTopic("b"))
    codes = [each.error_code for each in results]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def test_the_topic_that_grows_by_too_many_partitions_is_refused(kit: Any) -> None:
    """If this fails, one request stops all others for seconds, or refuses what is within bounds."""
    kit.create(*map(CreatableTopic, "abc"))
    wanted = {"a": 5_001, "b": 5_002, "c": 5_001}
    requests = [PartitionsRequest(name, count) for name, count in wanted.items()]
    results = kit.ask(kit.controller.create_partitions, requests, 1000)
    codes = [each.error_code for each in results]
    assert codes == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("requested", "code"),
    [
        (PartitionsRequest("a", 3), ErrorCode.NONE),
        (PartitionsRequest("a", 3, [[1]]), ErrorCode.NONE),
        (PartitionsRequest("a", 2), ErrorCode.INVALID_PARTITIONS),
        (PartitionsRequest("a", 1), ErrorCode.INVALID_PARTITIONS),
        (PartitionsRequest("a", -5), ErrorCode.INVALID_PARTITIONS),
        (PartitionsRequest("a", 2_000_000_000), ErrorCode.INVALID_PARTITIONS),
        (PartitionsRequest("b", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (PartitionsRequest("a", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (PartitionsRequest("a", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_partitions_are_added_or_refused(
    kit: Any, requested: PartitionsRequest, code: ErrorCode
) -> None:
    """Topics grow and never shrink."""
    kit.must_create("a", 2)
    (tried,) = kit.ask(kit.controller.create_partitions, [requested], 1000, validate_only=True)
    assert len(kit.cache.image.topics["a"].partitions) == 2
    (done,) = kit.ask(kit.controller.create_partitions, [requested], 1000)
    assert (tried.error_code, done.error_code) == (code, code)
    expected = 3 if code is ErrorCode.NONE else 2
    assert len(kit.cache.image.topics["a"].partitions) == expected


@pytest.mark.parametrize(
    ("operation", "request_of"),
    [
        ("create_topics", lambda kit: [CreatableTopic("new", 1, 1)]),
        ("create_partitions", lambda kit: [PartitionsRequest("a", 2)]),
        ("delete_topics", lambda kit: [TopicReference("a")]),
    ],
)
def test_a_store_that_does_not_answer_in_time_holds_nobody_up(
    kit: Any, operation: str, request_of: Callable[[Any], Any]
) -> None:
    """In a cluster without a controller nobody takes a topic up: who asked was never answered."""
    kit.must_create("a")
    kit.hold_commits()
    answers: list[Any] = []
    getattr(kit.controller, operation)(request_of(kit), 1000, answers.append)
    kit.timer.advance_clock(999)
    assert answers == []
    assert [each.missing for each in kit.purgatory.waiting()] == ["the metadata store's answer"]
    kit.timer.advance_clock(1)
    ((result,),) = answers
    assert result.error_code is ErrorCode.REQUEST_TIMED_OUT
    kit.commit_all()
    assert len(answers) == 1, "what comes late is told to nobody"
    assert kit.timer.size == 0


def test_a_topic_that_could_not_be_created_leaves_its_name_to_others(kit: Any) -> None:
    """`b.c` is taken while it is being created, and no longer."""
    kit.hold_commits()
    first, second = ([], [])
    kit.controller.create_topics([CreatableTopic("b.c", 1, 1)], 0, first.append)
    kit.controller.create_topics([CreatableTopic("b_c", 1, 1)], 0, second.append)
    assert second[0][0].error_code is ErrorCode.INVALID_TOPIC_EXCEPTION
    kit.store.close()
    kit.commit_all()
    assert first[0][0].error_code is ErrorCode.REQUEST_TIMED_OUT
    kit.controller.create_topics([CreatableTopic("b_c", 1, 1)], 0, second.append)
    assert second[1][0].error_code is ErrorCode.BROKER_NOT_AVAILABLE


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_who_gives_no_time_is_answered_at_once(kit: Any, timeout_ms: int) -> None:
    """A client would wait for as long as the store takes, which it has said it does not want."""
    kit.must_create("b")
    kit.hold_commits()
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    controller = kit.controller
    (made,) = kit.ask(controller.create_topics, [CreatableTopic("a", 1, 1)], timeout_ms)
    assert made.error_code is timed_out
    (grown,) = kit.ask(controller.create_partitions, [PartitionsRequest("b", 2)], timeout_ms)
    assert grown.error_code is timed_out
    (gone,) = kit.ask(controller.delete_topics, [TopicReference("b")], timeout_ms)
    assert gone.error_code is timed_out
    kit.commit_all()
    assert sorted(kit.cache.image.topics) == ["a"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("retention.ms", " 5 "), ("preallocate", "TRUE"), ("cleanup.policy", "delete,delete")],
)
def test_a_created_topic_repeats_its_settings_as_they_were_written(
    kit: Any, name: str, text: str
) -> None:
    """A tool that compares them with what it asked for would find another setting."""
    (result,) = kit.create(CreatableTopic("a", 1, 1, configs={name: text}))
    assert result.error_code is ErrorCode.NONE
    assert {entry.name: entry.value for entry in result.configs}[name] == text
