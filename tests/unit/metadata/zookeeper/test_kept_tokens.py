"""Delegation tokens in both stores: they survive, everybody hears of them, and Kafka 3.9 can read
them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.metadata.test_embedded_store import must, registered
from tests.unit.metadata.zookeeper.zookeeper_cluster import Cluster

from odradek.errors import BrokerError, ErrorCode
from odradek.metadata.kept_tokens import INFORMATION, token_resource
from odradek.metadata.sqlite.database import Database
from odradek.model import KafkaPrincipal
from odradek.security.delegation_tokens import TokenInformation, parse_token, token_text

ALICE, BOB = KafkaPrincipal("User", "a b,ä"), KafkaPrincipal("User", "bob")
TOKEN = TokenInformation("abc_DEF-1", ALICE, BOB, (BOB,), 1, 3, 2)
TEXT = token_text(TOKEN)
RESOURCE = token_resource(TOKEN.token_id)
NODE = f"/delegation_token/tokens/{TOKEN.token_id}"


def put(cluster: Cluster, broker_id: int, text: str | None) -> Any:
    changes = {RESOURCE: {INFORMATION: text}}
    return cluster.brokers[broker_id].ask("alter_configs", changes)


def known(cluster: Cluster) -> list[dict[str, str]]:
    return [dict(each.image.config(RESOURCE)) for each in cluster.brokers.values()]


def test_a_token_is_kept_as_kafka_keeps_it() -> None:
    """Kafka's brokers of a mixed cluster would not know whose it is."""
    assert json.loads(TEXT) == {
        "version": 3,
        "owner": "User%3Aa%20b%2C%C3%A4",
        "tokenRequester": "User%3Abob",
        "renewers": ["User%3Abob"],
        "issueTimestamp": 1,
        "maxTimestamp": 3,
        "expiryTimestamp": 2,
        "tokenId": "abc_DEF-1",
    }
    assert parse_token(TEXT) == TOKEN
    old = TEXT.replace('"tokenRequester":"User%3Abob",', "").replace('"version":3', '"version":1')
    assert parse_token(old) == TOKEN._replace(requester=ALICE)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "null", '{"owner":1}', "[" * 100_000, TEXT.replace("%3A", ""), '"'),
        *(TEXT.replace(":2,", f":{value},") for value in ("1e999", "Infinity", "NaN", 2**63, "[]")),
        *(TEXT.replace(part, "\\ud800") for part in ("bob", "%C3%A4")),
    ],
)
def test_what_is_no_token_is_refused(text: str) -> None:
    """A writer into ZooKeeper could end a broker, or come in as somebody."""
    with pytest.raises(ValueError, match=r"."):
        parse_token(text)


def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    """Jobs that run for days would be shut out by a restart."""
    store, _ = registered(Database(str(tmp_path)))
    store.alter_configs({RESOURCE: {INFORMATION: TEXT}}, must)
    store.close()
    _, cache = registered(Database(str(tmp_path)))
    assert dict(cache.image.config(RESOURCE)) == {INFORMATION: TEXT}


def test_every_broker_hears_of_a_token_and_of_its_end() -> None:
    """A job would come in at one broker and not at the next, or for longer than its token lives."""
    cluster = Cluster(3, keeps_tokens=True)
    assert put(cluster, 2, TEXT) is None
    assert known(cluster) == [{INFORMATION: TEXT}] * 3
    assert cluster.tree.text(NODE) == TEXT
    assert cluster.tree.text("/delegation_token/token_changes/token_change_0000000000") == (
        TOKEN.token_id
    )
    renewed = token_text(TOKEN._replace(expiry_ms=3))
    put(cluster, 3, renewed)
    assert known(cluster) == [{INFORMATION: renewed}] * 3
    late = cluster.add(4)
    assert dict(late.image.config(RESOURCE)) == {INFORMATION: renewed}
    put(cluster, 1, None)
    assert known(cluster) == [{}] * 4
    assert NODE not in cluster.tree.entries


def test_a_token_that_was_taken_back_is_not_renewed_elsewhere() -> None:
    """An ended token would be alive again: a broker that had not heard renewed it."""
    cluster = Cluster(2, keeps_tokens=True)
    put(cluster, 1, TEXT)
    del cluster.tree.entries[NODE]
    outcome = put(cluster, 2, token_text(TOKEN._replace(expiry_ms=3)))
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert NODE not in cluster.tree.entries


def test_what_kafka_writes_is_followed() -> None:
    """A token that was got from a Kafka of the cluster would be good there only."""
    cluster = Cluster(2, keeps_tokens=True)
    cluster.tree.put(NODE, TEXT)
    cluster.tree.put("/delegation_token/token_changes/token_change_0000000000", TOKEN.token_id)
    cluster.settle()
    assert known(cluster) == [{INFORMATION: TEXT}] * 2


def test_announcements_that_are_gone_have_everything_read() -> None:
    """A broker whose connection was away for long would take tokens that were taken back."""
    cluster = Cluster(2, keeps_tokens=True)
    put(cluster, 1, TEXT)
    tree = cluster.tree
    del tree.entries[NODE]
    tree.put("/delegation_token/token_changes/token_change_0000000009", "other")
    cluster.settle()
    assert known(cluster) == [{}] * 2


def test_settings_that_are_read_again_leave_tokens_alone() -> None:
    """A broker whose connection was away for long would end."""
    cluster = Cluster(1, keeps_tokens=True)
    put(cluster, 1, TEXT)
    change = '{"version":2,"entity_path":"users/alice"}'
    cluster.tree.put("/config/changes/config_change_0000000000", change)
    cluster.settle()
    cluster.tree.put("/config/changes/config_change_0000000009", change)
    cluster.settle()
    assert known(cluster) == [{INFORMATION: TEXT}]
    assert cluster.brokers[1].broken == []


def test_an_id_that_zookeeper_cannot_have_is_refused() -> None:
    """It would be written elsewhere."""
    cluster = Cluster(1, keeps_tokens=True)
    changes = {token_resource("a/b"): {INFORMATION: TEXT}}
    outcome = cluster.brokers[1].ask("alter_configs", changes)
    assert isinstance(outcome, BrokerError)
    assert outcome.code is ErrorCode.INVALID_REQUEST
