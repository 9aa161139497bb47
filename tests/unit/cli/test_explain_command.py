"""`odradek explain` against a broker in this process."""

import pytest

import odradek
from odradek.cli.main import main


@pytest.fixture(scope="module")
def broker():
    with odradek.Broker(config={"metrics.listener": "http://127.0.0.1:0"}) as broker:
        broker.create_topic("orders-more")
        yield broker


def run(capsys, *words):
    status = main(["explain", *words])
    done = capsys.readouterr()
    return status, done.out.splitlines(), done.err


def test_the_causes_are_ranked_lines(broker, capsys):
    """Fails when one has to read JSON to know why nothing comes."""
    status, lines, _ = run(capsys, "--url", broker.metrics_url, "--topic", "orders-more")
    assert status == 0
    assert lines == [
        "1. nothing has ever been written to orders-more",
        "2. no group reads orders-more, and no fetch waits for its records",
    ]


@pytest.mark.parametrize("flag", ["--group", "--client", "--transaction"])
def test_every_kind_is_asked_by_its_flag(broker, capsys, flag):
    """Fails when a name with signs of its own asks for something else."""
    name = "a&b=ö #1"
    status, lines, _ = run(capsys, "--url", broker.metrics_url, flag, name)
    assert status == 0
    assert name in lines[0]


def test_it_is_asked_about_one_thing(capsys):
    """Fails when a question without a name is sent."""
    with pytest.raises(SystemExit) as ended:
        main(["explain"])
    assert ended.value.code == 2
    assert "one of the arguments --group --topic --client --transaction" in capsys.readouterr().err


def test_a_broker_that_does_not_answer_is_said(capsys):
    """Fails when a person reads a traceback."""
    status, lines, error = run(capsys, "--url", "http://127.0.0.1:1", "--group", "g")
    assert (status, lines) == (1, [])
    assert "does not answer" in error
