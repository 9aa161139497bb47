"""GetTelemetrySubscriptions (71), version 0: the metrics that a client is to push (KIP-714).

Behaviour: see `client_metrics`. Listed in ApiVersions only if the broker has a receiver.
"""

from typing import Final
from uuid import UUID

from odradek.errors import BrokerError, ErrorCode
from odradek.handlers.context import HandlerContext
from odradek.handlers.request import Request
from odradek.handlers.telemetry.client_metrics import MOST_TEXT, Client
from odradek.records.compression import Compression

# In the order of preference.
ACCEPTED: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)


def handle(context: HandlerContext, request: Request) -> None:
    """Answers at once."""
    manager = context.client_metrics
    asked: UUID | None = request.body().client_instance_id
    try:
        instance = manager.ask(asked, client_of(context, request))
    except BrokerError as error:
        fail(request, error.code)
        return
    request.answer(
        client_instance_id=instance.id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=ACCEPTED,
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=manager.max_bytes,
        delta_temporality=True,
        requested_metrics=instance.metrics,
    )


def fail(request: Request, code: ErrorCode) -> None:
    """Answers with an error and no metrics."""
    request.answer(error_code=code)


def client_of(context: HandlerContext, request: Request) -> Client:
    """The attributes of the client that asks, as subscriptions name them; overlong ones are cut."""
    exchange = request.exchange
    name, version = context.client_metrics.software(exchange.connection_id)
    return Client(
        (request.client_id or "")[:MOST_TEXT],
        name[:MOST_TEXT],
        version[:MOST_TEXT],
        exchange.client_host,
        str(exchange.client_port),
    )
