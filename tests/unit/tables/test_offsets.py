"""If these fail, options or checkpoints written for Spark's Kafka connector mean something else."""

from uuid import UUID

import pytest

from odradek.model import TopicPartition
from odradek.tables.plan.offsets import (
    EARLIEST,
    LATEST,
    AtTimes,
    EndOfLog,
    ExactOffsets,
    offsets_from_json,
    offsets_to_json,
    parse_assignment,
    parse_offset_bound,
    parse_times,
    require_same_partitions,
    topic_ids_from_json,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_words_are_the_ends_of_the_log() -> None:
    assert parse_offset_bound("startingOffsets", " Earliest ") == EndOfLog(EARLIEST)
    assert parse_offset_bound("startingOffsets", "latest") == EndOfLog(LATEST)


def test_json_names_an_offset_for_every_partition() -> None:
    bound = parse_offset_bound("startingOffsets", '{"a": {"0": 23, "1": -2}, "b": {"0": -1}}')
    assert bound == ExactOffsets({A0: 23, A1: EARLIEST, B0: LATEST})


@pytest.mark.parametrize(
    "text",
    ["", "later", "[1]", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": true}}',
     '{"a": {"0": -3}}', '{"a": {"-1": 3}}'],
)  # fmt: skip
def test_anything_else_is_refused_with_the_name_of_the_option(text: str) -> None:
    with pytest.raises(ValueError, match="endingOffsets"):
        parse_offset_bound("endingOffsets", text)


def test_times_have_the_same_form() -> None:
    assert parse_times("t", '{"a": {"0": 1700000000000}}') == AtTimes({A0: 1_700_000_000_000})


def test_an_assignment_lists_partitions() -> None:
    assert parse_assignment("assign", '{"b": [0], "a": [1, 0, 1]}') == (A0, A1, B0)


@pytest.mark.parametrize("text", ["{}", '{"a": 0}', '{"a": ["0"]}', "a"])
def test_an_assignment_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="assign"):
        parse_assignment("assign", text)


def test_a_checkpoint_survives_the_way_there_and_back() -> None:
    offsets = {B0: 7, A1: 0, A0: 12}
    document = offsets_to_json(offsets)
    assert document == {"a": {"0": 12, "1": 0}, "b": {"0": 7}}
    assert offsets_from_json(document) == offsets
    assert topic_ids_from_json(document) == {}


def test_ids_of_topics_are_where_the_connector_sees_no_partition() -> None:
    offsets, ids = {A0: 12, B0: 7}, {"a": UUID(int=1), "c": UUID(int=2)}
    document = offsets_to_json(offsets, ids)
    assert document == {"a": {"0": 12}, "b": {"0": 7}, "a:AAAAAAAAAAAAAAAAAAAAAQ": {}}
    assert offsets_from_json(document) == offsets
    assert topic_ids_from_json(document) == {"a": UUID(int=1)}
    with pytest.raises(ValueError, match="'x' is not an id"):
        topic_ids_from_json({"a:x": {}})


def test_partitions_left_out_and_partitions_too_many_are_both_named() -> None:
    with pytest.raises(ValueError, match="missing: a-1; not read: b-0"):
        require_same_partitions("startingOffsets", [A0, B0], [A0, A1])
    require_same_partitions("startingOffsets", [A1, A0], [A0, A1])
