"""Names of clients on a terminal: none moves the cursor, hides a line or turns the text around.

The name of a group or a client is chosen by whoever connects, and sent to an operator's terminal.
"""

import io
import logging
import sys

import pytest

from odradek import Broker
from odradek.cli.everyday.record_formats import line_for_people
from odradek.cli.everyday.words import table_lines
from odradek.cli.main import main
from odradek.cli.terminal import BOLD, RESET, PrintableOutput, painted, screen, tell
from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.client.sync import Consumer
from odradek.log_limit import OneLineFormatter

EVIL = "a\x1b[2J\r\u202eb"
SHOWN = r"a\x1b[2J\r\u202eb"


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    "words",
    [
        ["groups"],
        ["groups", EVIL],
        ["top", "-n", "1"],
        ["consumer-groups", "--list"],
        ["consumer-groups", "--describe", "--all-groups"],
        ["consumer-groups", "--describe", "--all-groups", "--members"],
    ],
)
def test_names_are_shown_with_escapes_on_a_terminal(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        broker.produce("orders", b"x")
        config = {"group.id": EVIL, "client.id": EVIL, "auto.offset.reset": "earliest"}
        monkeypatch.setattr(sys, "stdout", terminal := Terminal())
        with Consumer(broker.bootstrap_servers, config=config) as consumer:
            consumer.subscribe(["orders"])
            assert consumer.getone().value == b"x"
            assert main([*words, "--bootstrap-server", broker.bootstrap_servers]) == 0
    shown = terminal.getvalue()
    assert SHOWN in shown
    left = shown.replace(BOLD, "").replace(RESET, "")
    assert all(each.isprintable() for each in left.splitlines())


def test_a_pipe_gets_what_kafkas_tools_write(capsys: pytest.CaptureFixture[str]) -> None:
    """A script compares names."""
    with Broker() as broker:
        broker.create_topic("orders")
        broker.reset(EVIL, "earliest", "orders")
        where = ["--bootstrap-server", broker.bootstrap_servers]
        assert main(["consumer-groups", "--list", *where]) == 0
    assert capsys.readouterr().out == f"{EVIL}\n"


def test_our_colours_and_screens_pass() -> None:
    terminal = Terminal()
    output = PrintableOutput(terminal)
    print(painted("GROUP", BOLD), EVIL, file=output)  # type: ignore[call-overload]
    output.writelines(["a\tb\n"])
    assert terminal.getvalue() == f"{BOLD}GROUP{RESET} {SHOWN}\na\tb\n"
    assert output.isatty()


def test_a_live_screen_draws_on_the_terminal_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """`odradek top` would show its cursor movements as text."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", PrintableOutput(terminal))
    assert screen() is terminal
    monkeypatch.setattr(sys, "stdout", terminal)
    assert screen() is terminal


def test_a_table_is_aligned_by_what_is_shown() -> None:
    assert table_lines(("GROUP", "#LAG"), [(EVIL, "1"), ("b", "20")]) == [
        f"GROUP{' ' * (len(SHOWN) - 5)}  LAG",
        f"{SHOWN}    1",
        f"b{' ' * (len(SHOWN) - 1)}   20",
    ]


def test_a_line_of_consume_has_no_control_characters() -> None:
    data = EVIL.encode()
    record = ConsumerRecord("orders", 0, 1, 0, 0, data, data, [(EVIL, data)], 5)
    line = line_for_people(shows_topic=False, colours=False)(record).decode()
    assert line.removesuffix("\n").isprintable()
    assert line.count(SHOWN) == 4


def test_an_error_quotes_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"there is no group {EVIL}")
    assert capsys.readouterr().err == f"odradek: there is no group {SHOWN}\n"


def test_the_log_of_a_broker_has_no_line_of_a_clients_own() -> None:
    record = logging.LogRecord(
        "odradek", logging.INFO, "", 0, "Preparing to rebalance group %s", (f"{EVIL}\nb",), None
    )
    formatted = OneLineFormatter("%(levelname)s %(message)s").format(record)
    assert formatted == rf"INFO Preparing to rebalance group {SHOWN}\nb"
