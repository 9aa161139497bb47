"""Checks that a producer's settings are consistent."""

from collections.abc import Iterator

from odradek.client.settings import ClientSettings


def check_consistent(settings: ClientSettings) -> None:
    """Refuses the combinations that Kafka's producer refuses, and adjusts the same settings.

    Raises:
        ValueError: a setting contradicts another.
    """
    if settings.flag("enable.idempotence"):
        for reason in _against_idempotence(settings):
            if "enable.idempotence" in settings.given or settings.text("transactional.id"):
                raise ValueError(reason)
            settings.override("enable.idempotence", False)
    if settings.text("transactional.id") and not settings.flag("enable.idempotence"):
        raise ValueError("Cannot set a transactional.id without also enabling idempotence.")
    in_flight = settings.number("max.in.flight.requests.per.connection")
    if settings.flag("enable.idempotence") and in_flight > 5:
        raise ValueError(
            "Must set max.in.flight.requests.per.connection to at most 5 to use the "
            "idempotent producer."
        )
    linger_ms, request_ms = settings.number("linger.ms"), settings.number("request.timeout.ms")
    delivery_ms = settings.number("delivery.timeout.ms")
    if delivery_ms < linger_ms + request_ms:
        if "delivery.timeout.ms" in settings.given:
            raise ValueError(
                "delivery.timeout.ms should be equal to or larger than linger.ms + "
                "request.timeout.ms"
            )
        settings.override("delivery.timeout.ms", linger_ms + request_ms)


def _against_idempotence(settings: ClientSettings) -> Iterator[str]:
    if settings.number("retries") == 0:
        yield "Must set retries to non-zero when using the idempotent producer."
    if settings.text("acks") not in ("all", "-1"):
        yield "Must set acks to all in order to use the idempotent producer."
