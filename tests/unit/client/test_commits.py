"""The requests of a commit, and the answers about its partitions.

If these fail, an offset of one topic is committed to another, or an uncommitted one counts as
committed.
"""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from odradek.client.apis import OFFSET_COMMIT, TXN_OFFSET_COMMIT, ClientApi
from odradek.client.core.admin_types import CommittedOffset
from odradek.client.core.groups.commits import commit_errors, commits_by_topic, committed_offsets
from odradek.client.errors import KafkaError
from odradek.errors import ErrorCode
from odradek.model import TopicPartition
from odradek.protocol import messages

OLD, NEW = UUID(int=1), UUID(int=2)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def of(**fields: object) -> Any:
    return SimpleNamespace(**fields)


def test_each_partition_is_of_the_topic_that_it_was_read_of() -> None:
    offsets = {T0: CommittedOffset(5, "m", 3), T1: CommittedOffset(7), U0: CommittedOffset(9)}
    asked = commits_by_topic(offsets, {T0: NEW, T1: OLD})
    found = [
        (topic["name"], topic.get("topic_id"), [dict(each) for each in topic["partitions"]])  # type: ignore[attr-defined]
        for topic in asked
    ]
    fields = ("partition_index", "committed_offset", "committed_leader_epoch", "committed_metadata")
    assert found == [
        ("t", NEW, [dict(zip(fields, (0, 5, 3, "m"), strict=True))]),
        ("t", OLD, [dict(zip(fields, (1, 7, -1, ""), strict=True))]),
        ("u", None, [dict(zip(fields, (0, 9, -1, ""), strict=True))]),
    ]


def test_what_nobody_asked_for_is_passed_over_and_what_is_missing_is_an_error() -> None:
    ids = {T0: NEW, T1: OLD}
    answer = of(
        topics=[
            of(topic_id=NEW, partitions=[of(partition_index=0, error_code=0)]),
            of(topic_id=UUID(int=3), partitions=[of(partition_index=1, error_code=0)]),
            of(topic_id=NEW, partitions=[of(partition_index=1, error_code=0)]),
        ]
    )
    errors = commit_errors(answer, [T0, T1], ids)
    assert errors[T0] is None
    assert isinstance(errors[T1], KafkaError)
    assert errors[T1].retriable


def test_a_refusal_is_of_its_partition_alone() -> None:
    refused = of(partition_index=1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    answer = of(
        topics=[
            of(topic_id=NEW, partitions=[of(partition_index=0, error_code=0)]),
            of(topic_id=OLD, partitions=[refused]),
        ]
    )
    errors = commit_errors(answer, [T0, T1], {T0: NEW, T1: OLD})
    assert errors[T0] is None
    assert errors[T1] is not None
    assert errors[T1].code == ErrorCode.UNKNOWN_TOPIC_ID


def test_what_a_group_has_committed() -> None:
    def partition(index: int, offset: int, code: int = 0) -> Any:
        return of(partition_index=index, committed_offset=offset, metadata=None, error_code=code)

    topic = of(name="t", partitions=[partition(0, 5), partition(1, -1), partition(2, -1, 30)])
    answer = of(groups=[of(group_id="other"), of(group_id="g", error_code=0, topics=[topic])])
    found = committed_offsets(answer, "g")
    assert found[T0] == CommittedOffset(5)
    assert found[T1] is None
    assert isinstance(found[TopicPartition("t", 2)], KafkaError)
    with pytest.raises(KafkaError, match="nothing of g"):
        committed_offsets(of(groups=[]), "g")


@pytest.mark.parametrize("api", [OFFSET_COMMIT, TXN_OFFSET_COMMIT])
def test_every_request_for_commits_takes_the_topics(api: ClientApi) -> None:
    """Commits of a transaction have no ids, in no version."""
    topics = commits_by_topic({T0: CommittedOffset(5)})
    for version in range(api.min_version, api.max_version + 1):
        values = {
            "group_id": "g",
            "generation_id_or_member_epoch": 1,
            "member_id": "m",
            "transactional_id": "x",
            "producer_id": 1,
            "producer_epoch": 0,
            "generation_id": 1,
            "topics": topics,
        }
        assert messages.encode_request(api.key, version, _known(api, values))


def _known(api: ClientApi, values: dict[str, object]) -> dict[str, object]:
    of_transactions = ("transactional_id", "producer_id", "producer_epoch", "generation_id")
    of_others = ("generation_id_or_member_epoch",)
    left_out = of_others if api is TXN_OFFSET_COMMIT else of_transactions
    return {name: value for name, value in values.items() if name not in left_out}
