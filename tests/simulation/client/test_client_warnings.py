"""The warnings that a client logs now and then about troubles that may pass, and raise no error."""

import pytest
from tests.simulation.client.consuming.client_groups import METADATA
from tests.simulation.client.test_client_cluster import ALL, Stage, answering, play

from odradek.errors import ErrorCode
from odradek.model import TopicPartition


@pytest.mark.parametrize("is_member", [True, False])
def test_a_topic_that_is_not_there_is_told_of(
    caplog: pytest.LogCaptureFixture, is_member: bool
) -> None:
    """Fails when a reader that mistypes a name waits for its records without a warning."""
    missing = [{"name": "misspelt", "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]

    async def scenario(stage: Stage) -> None:
        values = {"brokers": [{"node_id": 1, "host": "client", "port": 1}], "topics": missing}
        async with stage.consumer(client_id="c") as consumer:
            if is_member:
                consumer.subscribe(["misspelt"])
            else:
                consumer.assign([TopicPartition("misspelt", 0)])
            with stage.bent(answering(METADATA, values)):
                await consumer.getmany(timeout_ms=40_000)

    play(scenario)
    told = [each for each in caplog.messages if "misspelt" in each]
    assert len(told) in (1, 2), told
    assert told[0].startswith("c: a topic cannot be used now: UNKNOWN_TOPIC_OR_PARTITION: misspelt")


@pytest.mark.parametrize(
    ("code", "is_told_of"),
    [(ErrorCode.KAFKA_STORAGE_ERROR, True), (ErrorCode.NOT_LEADER_OR_FOLLOWER, False)],
)
@pytest.mark.parametrize("is_reading", [True, False])
def test_a_partition_that_cannot_be_read_is_told_of(
    caplog: pytest.LogCaptureFixture, code: ErrorCode, is_told_of: bool, is_reading: bool
) -> None:
    """It may be so for hours, and nothing of it be seen; not where a leader only moves."""

    async def scenario(stage: Stage) -> None:
        async with stage.consumer(group_id="", auto_offset_reset="earliest") as consumer:
            consumer.assign(ALL[:1])
            if is_reading:
                await consumer.getmany(timeout_ms=1_000)
            stage.brokers.fetch_error = code
            await consumer.getmany(timeout_ms=5_000)

    play(scenario)
    told = [each for each in caplog.messages if "cannot be read now" in each]
    assert len(told) == int(is_told_of), told
