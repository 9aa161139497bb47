"""If these fail, clients hammer a broker that is down, give up early, or take a wrong setting."""

import errno
import random
import socket

import pytest

from odradek.client.core.producing.consistency import check_consistent
from odradek.client.core.retries import UNKNOWN_TOPIC_PATIENCE_MS, Attempts, ExponentialBackoff
from odradek.client.errors import (
    AuthorizationError,
    KafkaError,
    NetworkError,
    RequestError,
    RetriableError,
    error_for,
    in_words,
    raise_for,
)
from odradek.client.settings import ADMIN_SETTINGS, PRODUCER_SETTINGS, ClientSettings
from odradek.errors import BrokerError, ErrorCode


class Mean:
    """Rng that always fall in the middle."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def test_waits_double_up_to_the_longest() -> None:
    backoff = ExponentialBackoff(100, 1000, Mean())
    assert [backoff.wait_ms(failures) for failures in range(6)] == [100, 200, 400, 800, 1000, 1000]
    assert backoff.wait_ms(10_000) == 1000


def test_waits_differ_by_a_fifth_and_never_exceed_the_longest() -> None:
    backoff = ExponentialBackoff(100, 1000, random.Random(1))
    waits = [backoff.wait_ms(3) for _ in range(200)]
    assert 640 <= min(waits) < 700
    assert 900 < max(waits) <= 960


def test_attempts_end_with_the_time_and_with_errors_that_stay() -> None:
    attempts = Attempts(ExponentialBackoff(100, 1000, Mean()), 0, 1_000)
    retriable = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert attempts.after_failure(retriable, 0) == 100
    assert attempts.after_failure(retriable, 100) == 200
    assert attempts.after_failure(retriable, 900) == 100, "the last attempt is at the end"
    assert attempts.after_failure(retriable, 1_000) is None
    fresh = Attempts(ExponentialBackoff(100, 1000, Mean()), 0, 1_000)
    assert fresh.after_failure(ErrorCode.INVALID_CONFIG, 0) is None


def test_a_topic_that_does_not_exist_is_not_waited_for_long() -> None:
    attempts = Attempts(ExponentialBackoff(100, 1000, Mean()), 0, 60_000)
    assert attempts.after_failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1_900) == 100
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert attempts.after_failure(unknown, UNKNOWN_TOPIC_PATIENCE_MS) is None


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_every_code_has_its_type(code: ErrorCode) -> None:
    error = error_for(code, "why")
    assert isinstance(error, KafkaError)
    assert isinstance(error, BrokerError)
    assert (error.code, error.message, error.retriable) == (code, "why", code.retriable)
    if not isinstance(error, RequestError | RetriableError):
        assert type(error) is not KafkaError or code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert isinstance(error, RetriableError) == code.retriable


def test_codes_become_errors_in_one_place() -> None:
    raise_for(0)
    with pytest.raises(AuthorizationError):
        raise_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(error_for(ErrorCode.NETWORK_EXCEPTION), NetworkError)
    unknown = error_for(9_999, "from the future")
    assert unknown.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "9999: from the future" in unknown.message


def test_settings_are_read_under_both_names() -> None:
    settings = ClientSettings(
        ADMIN_SETTINGS,
        {"client.id": "me", "bootstrap.servers": ["a:1", "b:2"]},
        {"request_timeout_ms": 5},
    )
    assert settings.text("client.id") == "me"
    assert settings.items("bootstrap.servers") == ("a:1", "b:2")
    assert settings.number("request.timeout.ms") == 5
    assert settings.number("default.api.timeout.ms") == 60_000
    assert settings.given == {"client.id", "bootstrap.servers", "request.timeout.ms"}


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"request_timeout": 1}, r"did you mean request\.timeout\.ms"),
        ({"request_timeout_ms": -1}, "at least 0"),
        ({"request_timeout_ms": "soon"}, "Not a number"),
        ({"quite_another": 1}, "no such setting"),
    ],
)
def test_mistaken_settings_are_named(keywords: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ClientSettings(ADMIN_SETTINGS, {}, keywords)


@pytest.mark.parametrize(
    ("excluding", "reason"),
    [({"retries": 0}, "Must set retries to non-zero"), ({"acks": 1}, "Must set acks to all")],
)
def test_batches_are_numbered_where_that_is_possible(
    excluding: dict[str, object], reason: str
) -> None:
    """A batch that is given up and not repeated would leave a gap in the numbers."""
    settings = ClientSettings(PRODUCER_SETTINGS, excluding, {})
    check_consistent(settings)
    assert not settings.flag("enable.idempotence")
    for asks in ({"enable.idempotence": "true"}, {"transactional.id": "t"}):
        with pytest.raises(ValueError, match=reason):
            check_consistent(ClientSettings(PRODUCER_SETTINGS, {**excluding, **asks}, {}))


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        # As asyncio's own loop says it, and uvloop.
        (OSError(errno.ECONNREFUSED, "Connect call failed ('::1', 9)"), "Connection refused"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), "Connection refused"),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), "no such name"),
        (TimeoutError("timed out"), "timed out"),
        ("the broker closed the connection", "the broker closed the connection"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_reasons_are_told_in_words(reason: object, words: str) -> None:
    """Numbers of an operating system say nothing to whoever has mistyped a port."""
    assert in_words(reason) == words
