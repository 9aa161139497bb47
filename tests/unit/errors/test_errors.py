"""Clients decide by the error table: a wrong number or flag makes them do the wrong thing."""

import pytest

from odradek.errors import BrokerError, ErrorCode, LogDirFailure


def test_codes_are_contiguous_and_complete() -> None:
    """A missing code would turn into UNKNOWN_SERVER_ERROR in a client's hands."""
    assert [int(code) for code in ErrorCode] == list(range(-1, 134))


def test_a_number_beyond_the_table_is_an_unknown_error() -> None:
    """An answer of a newer broker would raise where it is read."""
    assert ErrorCode(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ValueError, match="NONE"):
        ErrorCode("NONE")


@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_a_sentence(code: ErrorCode) -> None:
    """A code without a text would raise while an error is being answered."""
    assert code.text.endswith(".")


@pytest.mark.parametrize(
    ("name", "number", "retriable"),
    [
        ("UNKNOWN_SERVER_ERROR", -1, False),
        ("CORRUPT_MESSAGE", 2, True),
        ("BROKER_NOT_AVAILABLE", 8, False),
        ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", 20, True),
        ("REBALANCE_IN_PROGRESS", 27, False),
        ("KAFKA_STORAGE_ERROR", 56, True),
        ("FENCED_LEADER_EPOCH", 74, True),
        ("UNKNOWN_TOPIC_ID", 100, True),
        ("SHARE_SESSION_LIMIT_REACHED", 133, True),
    ],
)
def test_known_rows(name: str, number: int, retriable: bool) -> None:
    """These rows were compared with a real broker's table."""
    code = ErrorCode[name]
    assert (int(code), code.retriable) == (number, retriable)


def test_thirty_two_codes_are_retriable() -> None:
    """The set was compared with Kafka 4.3 as a whole; a change must be a conscious one."""
    assert sum(code.retriable for code in ErrorCode) == 32


def test_broker_error_falls_back_to_the_codes_text() -> None:
    """Answers always carry a sentence."""
    assert BrokerError(ErrorCode.NOT_CONTROLLER).message == ErrorCode.NOT_CONTROLLER.text
    assert BrokerError(ErrorCode.NOT_CONTROLLER, "").message == ""
    assert str(BrokerError(ErrorCode.INVALID_REQUEST, "why")) == "INVALID_REQUEST: why"


def test_log_dir_failure_names_directory_and_cause() -> None:
    """The one log line about a broken disk must say which and why."""
    failure = LogDirFailure("/data", OSError(5, "Input/output error"))
    assert failure.directory == "/data"
    assert "/data" in str(failure)
    assert "Input/output error" in str(failure)
