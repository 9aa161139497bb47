"""How console consumers print records. If these fail, a script is shown more, less or something
else than Apache Kafka's tools show."""

from collections.abc import Callable, Iterator

import pytest

import odradek
from odradek.cli.main import main

FLAG = "--formatter-property"
Shown = Callable[..., str]


@pytest.fixture
def broker() -> Iterator[odradek.Broker]:
    with odradek.Broker() as broker:
        yield broker


@pytest.fixture
def shown(broker: odradek.Broker, capfd: pytest.CaptureFixture[str]) -> Shown:
    """What the console consumer prints of the first records of a topic."""

    def call(topic: str, count: int, *words: str) -> str:
        where = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic]
        begin = ["--from-beginning", "--max-messages", str(count)]
        capfd.readouterr()
        assert main(["console-consumer", *where, *begin, *words]) == 0
        return capfd.readouterr().out

    return call


@pytest.mark.parametrize(
    ("more", "expected"),
    [((), ""), (("line.separator=;",), ""), (("print.key=true",), "k\nk\n")],
)
def test_a_record_of_which_nothing_is_shown_has_no_line(
    broker: odradek.Broker, shown: Shown, more: tuple[str, ...], expected: str
) -> None:
    """Who counts records without their values would be given empty lines."""
    for _ in range(2):
        broker.produce("t", b"v", key=b"k")
    words = [word for each in ("print.value=false", *more) for word in (FLAG, each)]
    assert shown("t", 2, *words) == expected
