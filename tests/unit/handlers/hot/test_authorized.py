"""If one of these fails, records are written or read by somebody who may not."""

from dataclasses import replace

import pytest
from tests.unit.handlers.hot.conftest import PRODUCE

from odradek.acl import (
    AccessControlEntry,
    AclBinding,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from odradek.controller.acl_control import AclControl
from odradek.errors import ErrorCode
from odradek.handlers.authorization import guarded
from odradek.handlers.dispatcher import Dispatcher
from odradek.handlers.table import API_TABLE
from odradek.model import ANONYMOUS, AclOperation, ResourceType
from odradek.protocol.direct.fetch import FetchPartition
from odradek.protocol.direct.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
    decode_produce_response,
    encode_produce_request,
)
from odradek.security.authorizer import Authorizer

READ, WRITE = AclOperation.READ, AclOperation.WRITE
NONE, REFUSED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Acls:
    """Makes the clients of a broker ask for permission; they have none yet."""

    def __init__(self, broker):
        cluster, authorizer = broker.cluster, Authorizer()
        cluster.cache.on_published(authorizer.apply)
        self._control = AclControl(cluster.store, cluster.cache)
        apis = guarded(API_TABLE, authorizer)
        broker.dispatcher = Dispatcher(replace(cluster.context, apis=apis))

    def allow(self, operation, name, type=ResourceType.TOPIC):
        pattern = ResourcePattern(type, name, PatternType.LITERAL)
        entry = AccessControlEntry(str(ANONYMOUS), "*", operation, PermissionType.ALLOW)
        self._control.create([AclBinding(pattern, entry)], lambda outcome: None)


@pytest.fixture
def acls(broker):
    return Acls(broker)


@pytest.mark.parametrize("transactional_id", ["orders", ""])
def test_a_transaction_needs_a_permission(broker, acls, batch, transactional_id):
    """Where nobody asks for one, a producer that may write leaves a transaction open for ever."""
    broker.create()
    acls.allow(WRITE, "orders")
    records = batch(b"a", is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    refused = broker.produce(records, txn=transactional_id)
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert broker.log().log_end_offset == 0
    acls.allow(WRITE, transactional_id or "*", ResourceType.TRANSACTIONAL_ID)
    assert broker.produce(records, txn=transactional_id).error_code == NONE


@pytest.mark.parametrize("version", [9, 13])
def test_each_refused_partition_is_answered_at_its_place(broker, acls, batch, version):
    asked = [("open", 0), ("closed", 0), ("closed", 7), ("open", 1), ("closed", 1)]
    ids = {name: broker.create(name, 2) for name in ("open", "closed")}
    acls.allow(WRITE, "open")
    topics = [
        ProduceTopic(
            name if version < 13 else None,
            ids[name] if version >= 13 else None,
            [ProducePartition(index, batch(b"a"))],
        )
        for name, index in asked
    ]
    request = encode_produce_request(ProduceRequest(None, 1, 1000, topics), version)
    exchange = broker.handle(PRODUCE, version, request)
    broker.dispatcher.end_of_read()
    response = broker.decode(decode_produce_response, exchange, PRODUCE, version)
    codes = [each.partitions[0].error_code for each in response.topics]
    assert codes == [NONE if name == "open" else REFUSED for name, _ in asked]
    assert broker.log("open", 1).log_end_offset == 1
    assert broker.log("closed", 1).log_end_offset == 0


@pytest.mark.parametrize("version", [12, 13])
def test_a_session_of_fetches_asks_anew_each_time(broker, acls, batch, version):
    """Its first request may have come when the client was allowed to read, or not yet."""
    topic_id = broker.create()
    topic = topic_id if version >= 13 else "orders"
    acls.allow(WRITE, "orders")
    broker.produce(batch(b"a"))
    refused = broker.fetch(
        FetchPartition(0, 0, 1 << 20), version=version, topic=topic, session_epoch=0
    )
    assert refused.topics[0].partitions[0].error_code == REFUSED
    assert not refused.topics[0].partitions[0].records
    acls.allow(READ, "orders")
    again = broker.fetch(
        version=version, topic=topic, session_id=refused.session_id, session_epoch=1
    )
    assert again.topics[0].partitions[0].error_code == NONE
    assert again.topics[0].partitions[0].records
