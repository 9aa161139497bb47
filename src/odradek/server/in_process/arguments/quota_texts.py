"""Quotas in words, as a test writes them: `{"user:alice": {"producer_byte_rate": 1000}}`."""

from collections.abc import Mapping
from typing import Final

from odradek.client_quota import QuotaKey
from odradek.controller.quota_control import CLIENT_ID, IP, USER, QuotaAlteration, checked
from odradek.errors import BrokerError
from odradek.server.in_process.arguments.kinds import check_mapping
from odradek.suggestions import chosen

_TYPES: Final = (USER, CLIENT_ID, IP)
_KEYS: Final = [key.value for key in QuotaKey]
_ANYBODY: Final = "*"
QuotaTexts = Mapping[str, Mapping[str, float]]


def read_quotas(quotas: QuotaTexts) -> list[QuotaAlteration]:
    """The quotas of entities; `user:*` is the default of users, `user:alice,client-id:app` both
    together.

    Raises:
        TypeError: these are no quotas by entity, or an entity's are none by name.
        ValueError: an entity is none, or a quota is one that it cannot have.
    """
    check_mapping("quotas", "entities", quotas)
    return [_alteration(text, values) for text, values in quotas.items()]


def _alteration(text: str, values: Mapping[str, float]) -> QuotaAlteration:
    check_mapping(f"quotas[{text!r}]", "quotas", values)
    ops = [
        (chosen("quota", key, _KEYS), _bound(f"quotas[{text!r}][{key!r}]", value))
        for key, value in values.items()
    ]
    alteration = QuotaAlteration(_entity(text), ops)
    try:
        checked(alteration)
    except BrokerError as error:
        raise ValueError(f"{text!r}: {error.message}") from None
    return alteration


def _bound(argument: str, value: object) -> float:
    if not isinstance(value, int | float | str):
        raise TypeError(f"{argument} is a number, and not of type {type(value).__name__}")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{argument} is a number, and not {value!r}") from None


def _entity(text: str) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for part in text.split(","):
        kind, colon, name = part.partition(":")
        if kind not in _TYPES or not colon or not name:
            raise ValueError(
                f"{text!r}: quotas are of user:NAME, client-id:NAME or both, or of ip:ADDRESS"
            )
        found.append((kind, None if name == _ANYBODY else name))
    return found
