"""`odradek acls` beside Kafka's `kafka-acls`: the same lines, each on a broker of its own."""

from collections.abc import Iterator

import pytest
from tests.wire.client.tools.comparing.answers import Ours
from tests.wire.java_tools import Done, JavaTools

import odradek

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jvm")]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LINES = (
    "--list",
    "--add --allow-principal User:alice --operation Read --operation describe --topic t",
    "--add --allow-principal User:alice --operation Read --topic t",
    "--add --allow-principal User:bob --allow-principal User:carol --producer --topic t --topic u",
    "--add --allow-principal User:bob --producer --idempotent --topic t --transactional-id x",
    "--add --allow-principal User:dora --consumer --topic t --group g",
    "--add --deny-principal User:eve --deny-host 192.0.2.1 --deny-host 192.0.2.2 --topic t",
    "--add --allow-principal User:* --cluster --operation DescribeConfigs",
    "--add --allow-principal User:alice --topic p- --resource-pattern-type prefixed",
    "--add --allow-principal User:alice --user-principal User:bob --operation CreateTokens",
    "--list",
    "--list --topic t",
    "--list --topic p-1 --resource-pattern-type match",
    "--list --topic p- --resource-pattern-type any",
    "--list --principal User:alice --principal User:nobody",
    "--remove --topic t --allow-principal User:alice --operation Read --force",
    "--remove --topic t --producer --allow-principal User:bob --force",
    "--remove --topic u --force",
    "--remove --topic p-1 --resource-pattern-type match --force",
    "--list",
    # Mistakes
    "--add --topic t",
    "--add --allow-principal User:alice",
    "--add --allow-principal alice --topic t",
    "--add --allow-principal User:alice --topic t --resource-pattern-type match",
    "--add --allow-principal User:alice --group g --operation Write",
    "--add --remove --topic t",
    "--topic t",
    "--list --producer",
    "--add --producer --allow-principal User:a --group g",
    "--add --producer --allow-principal User:a --topic t --operation Read",
    "--add --consumer --allow-principal User:a --topic t",
    "--add --idempotent --allow-principal User:a --topic t",
    "--add --principal User:a --topic t",
)


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[str, str]]:
    with odradek.Broker(config=SETTINGS) as ours, odradek.Broker(config=SETTINGS) as theirs:
        yield ours.bootstrap_servers, theirs.bootstrap_servers


def told(done: Done) -> list[str]:
    """The printed lines, without traces and in one order: Kafka's is that of hash tables."""
    lines = (line.strip() for line in done.output.splitlines())
    return sorted(
        line for line in lines if line and not line.startswith(("at ", "java.", "Caused"))
    )


def test_the_same_is_printed(brokers: tuple[str, str], ours: Ours, java_tools: JavaTools) -> None:
    """A script that reads what `kafka-acls` prints would break."""
    found = []
    for line in LINES:
        mine = ours("acls", ["--bootstrap-server", brokers[0], *line.split()], "")
        theirs = java_tools("acls", ["--bootstrap-server", brokers[1], *line.split()])
        if bool(mine.status) != bool(theirs.status):
            found.append(f"{line}: status {mine.status}, Kafka's {theirs.status}: {mine}")
        elif told(mine) != told(theirs) and "exactly one action" not in theirs.errors:
            found.append(f"{line}\n{told(mine)}\nKafka's\n{told(theirs)}")
    assert not found, "\n\n".join(found)


def test_a_broker_without_an_authorizer_says_so(ours: Ours) -> None:
    """The tool would print no ACLs, as if there were none."""
    with odradek.Broker() as broker:
        done = ours("acls", ["--bootstrap-server", broker.bootstrap_servers, "--list"], "")
    assert done.status == 1
    assert "No Authorizer is configured on the broker" in done.output
