"""`odradek metrics` against a broker in this process."""

import json

import pytest

import odradek
from odradek.cli.everyday.monitoring import metrics as command
from odradek.cli.main import main


@pytest.fixture
def broker():
    with odradek.Broker(config={"metrics.listener": "http://127.0.0.1:0"}) as broker:
        broker.produce("orders", "x")
        yield broker


def run(capsys, *words):
    status = main(["metrics", *words])
    done = capsys.readouterr()
    return status, done.out.splitlines(), done.err


def test_a_word_shows_the_metrics_that_have_it_in_their_names(broker, capsys):
    """Fails when one has to find a metric among a thousand lines."""
    status, lines, _ = run(capsys, "--url", broker.metrics_url, "messagesin")
    assert status == 0
    assert lines[0].split() == ["METRIC", "VALUE"]
    shown = dict(line.split() for line in lines[1:])
    assert shown == {
        "kafka_server_brokertopicmetrics_messagesin_total": "1",
        'kafka_server_brokertopicmetrics_messagesin_total{topic="orders"}': "1",
    }


def test_json_is_for_programs(broker, capsys):
    """Fails when a script has to take a table apart."""
    status, lines, _ = run(capsys, "--url", broker.metrics_url, "-o", "json", "kafka_brokers")
    assert (status, json.loads(lines[0])) == (0, {"kafka_brokers": 1.0})


def test_watching_shows_what_counters_grow_by(broker, capsys, monkeypatch):
    """Fails when `--watch` shows no rates, or rates of gauges."""
    looks = []

    def another_look(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            raise KeyboardInterrupt
        broker.produce("orders", "y")
        broker.produce("orders", "z")

    monkeypatch.setattr(command.time, "sleep", another_look)
    words = ("--url", broker.metrics_url, "messagesin", "--watch", "--every", "0.5")
    status, lines, _ = run(capsys, *words)
    assert status == 130
    again = lines.index("", 1) + 1
    assert lines[again].split() == ["METRIC", "VALUE", "A", "SECOND"]
    assert lines[again + 1].split()[1:] == ["3", "4.0"]


def test_a_name_that_nothing_has_is_said(broker, capsys):
    """Fails when a mistyped name looks as if there were nothing to tell."""
    status, lines, error = run(capsys, "--url", broker.metrics_url, "nonsense")
    assert (status, lines) == (1, [])
    assert error == "odradek: no metric has 'nonsense' in its name\n"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:1", "does not answer (Connection refused); "),
        ("file:///etc/passwd", "is no http://HOST:PORT"),
        ("http://127.0.0.1:x", "does not answer"),
    ],
)
def test_a_broker_that_does_not_answer_is_said(capsys, url, said):
    """Fails when a person reads a traceback, or a file."""
    status, lines, error = run(capsys, "--url", url)
    assert (status, lines) == (1, [])
    assert said in error
