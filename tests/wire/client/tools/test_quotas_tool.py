"""`odradek configs` of users, clients and addresses beside Kafka's `kafka-configs`, each on a
broker of its own."""

import pytest
from tests.wire.client.tools.comparing.answers import TRACE, Ours, sentences
from tests.wire.java_tools import Done, JavaTools

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

LINES = (
    "--describe --entity-type clients",
    "--alter --entity-type clients --entity-name x --add-config producer_byte_rate=1024",
    "--alter --client x --add-config consumer_byte_rate=10000000,controller_mutation_rate=0.5",
    "--alter --entity-type clients --entity-default --add-config producer_byte_rate=2048",
    "--alter --user alice --client-defaults --add-config consumer_byte_rate=5",
    "--alter --entity-type users --entity-name alice --entity-type clients --entity-name x "
    "--add-config consumer_byte_rate=6",
    "--describe --entity-type clients",
    "--describe --client x",
    "--describe --client-defaults",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type users --entity-name alice --entity-type clients --entity-default",
    "--alter --client x --delete-config producer_byte_rate",
    "--describe --client x",
    "--alter --client x --delete-config producer_byte_rate",
    # Mistakes
    "--alter --client x --add-config no.such.rate=1",
    "--alter --client x --add-config producer_byte_rate=many",
    "--alter --client x",
    "--alter --client x --add-config SCRAM-SHA-256=[password=p]",
    "--alter --user alice --client x --delete-config no.such.rate",
    "--alter --entity-type ips --entity-name 127.0.0.1 --add-config producer_byte_rate=1",
    "--alter --entity-type ips --entity-name 127.0.0.1 --delete-config producer_byte_rate",
)
LINES_OF_LOGINS = (
    "--describe --entity-type users",
    "--alter --entity-type users --entity-name alice --add-config SCRAM-SHA-256=[password=a]",
    "--alter --user bob --add-config "
    "SCRAM-SHA-256=[iterations=8192,password=b-secret],SCRAM-SHA-512=[password=c,d=e]",
    "--alter --user bob --add-config consumer_byte_rate=5",
    "--describe --entity-type users",
    "--describe --user bob",
    "--describe --user nobody",
    "--describe --user-defaults",
    "--describe --entity-type users --entity-type clients",
    "--alter --user bob --delete-config SCRAM-SHA-256",
    "--describe --user bob",
    "--alter --user bob --add-config SCRAM-SHA-256=[iterations=-1,password=f] "
    "--delete-config SCRAM-SHA-512",
    "--describe --user bob",
    # Mistakes
    "--alter --user bob --delete-config SCRAM-SHA-512",
    "--alter --user bob --add-config SCRAM-SHA-256=[iterations=4095,password=g]",
    "--alter --user bob --add-config SCRAM-SHA-256=[iterations=16385,password=g]",
    "--alter --user bob --add-config SCRAM-SHA-1=[password=g]",
    "--alter --user bob --delete-config SCRAM-SHA-1",
    "--alter --user bob --add-config SCRAM-SHA-256=[password=g],consumer_byte_rate=1",
    "--alter --user bob --add-config SCRAM-SHA-256=[password=g] --delete-config consumer_byte_rate",
    "--alter --user-defaults --add-config SCRAM-SHA-256=[password=g]",
    "--alter --entity-type users --entity-default --delete-config SCRAM-SHA-256",
)


def told(done: Done) -> list[str]:
    """The printed lines, each one's words in one order: Kafka's is that of hash tables."""
    lines = (line.strip().replace(",", "") for line in done.output.splitlines())
    return sorted(" ".join(sorted(line.split())) for line in lines if line)


def agree(theirs: Done, ours: Done) -> bool:
    """Whether a line did the same; where Kafka's tool has no more to say than a stack trace, ours
    may have its own sentence."""
    is_traced = TRACE.search(theirs.errors) is not None
    says_the_same = is_traced or sentences(theirs.errors) == sentences(ours.errors)
    return bool(ours.status) == bool(theirs.status) and told(ours) == told(theirs) and says_the_same


@pytest.mark.parametrize("lines", [LINES, LINES_OF_LOGINS])
def test_the_same_is_printed(lines: tuple[str, ...], ours: Ours, java_tools: JavaTools) -> None:
    """A script that reads what `kafka-configs` prints would break."""
    found = []
    with odradek.Broker() as mine, odradek.Broker() as theirs:
        for line in lines:
            words = line.split()
            done = ours("configs", ["--bootstrap-server", mine.bootstrap_servers, *words], "")
            kafkas = java_tools("configs", ["--bootstrap-server", theirs.bootstrap_servers, *words])
            if not agree(kafkas, done):
                found.append(f"{line}\n{done}\nKafka's\n{kafkas}"[:1500])
    assert not found, "\n\n".join(found)
