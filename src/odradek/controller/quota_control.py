"""Kafka's rules for client quotas, and the search for them."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Final, NamedTuple

from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey, plain_ip
from odradek.controller.slices import Defer, OnSlice, slice_by_slice
from odradek.errors import BrokerError, ErrorCode, without_frames
from odradek.metadata.store import MetadataStore

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_LARGEST: Final = {
    QuotaKey.PRODUCER_BYTES: 2**63 - 1,
    QuotaKey.CONSUMER_BYTES: 2**63 - 1,
    QuotaKey.CONNECTION_CREATION: 2**31 - 1,
}
"""The largest quota, for those that are whole numbers."""
_EPSILON: Final = 1e-6


class QuotaAlteration(NamedTuple):
    """A change as asked: pairs of a type and a name (None for the default), and of a key and a
    value (None to remove it)."""

    entity: Sequence[tuple[str, str | None]]
    ops: Sequence[tuple[str, float | None]]


def alter_client_quotas(
    store: MetadataStore,
    wishes: Sequence[QuotaAlteration],
    on_done: Callable[[list[BrokerError | None]], None],
    *,
    validate_only: bool = False,
    defer: Defer | None = None,
) -> None:
    """Makes the acceptable changes, and answers an error for each of the others."""
    named: set[QuotaEntity] = set()

    def alter(some: Sequence[QuotaAlteration], on_some: OnSlice[BrokerError | None]) -> None:
        altered: dict[QuotaEntity, Mapping[QuotaKey, float | None]] = {}
        outcomes = [_note(each, named, altered) for each in some]

        def on_stored(error: BrokerError | None) -> None:
            on_some([error if each is None else each for each in outcomes])

        if validate_only or not altered:
            on_stored(None)
        else:
            store.alter_client_quotas(altered, on_stored)

    slice_by_slice(wishes, alter, on_done, defer)


def _note(
    wish: QuotaAlteration,
    named: set[QuotaEntity],
    altered: dict[QuotaEntity, Mapping[QuotaKey, float | None]],
) -> BrokerError | None:
    """Adds a change to those that are made together; returns its error, if it is refused. Of
    several changes of one entity only the first is made."""
    try:
        entity, alterations = checked(wish)
        if entity in named:
            raise _invalid("An entity is named twice.")
    except BrokerError as error:
        return without_frames(error)
    named.add(entity)
    altered[entity] = alterations
    return None


def checked(wish: QuotaAlteration) -> tuple[QuotaEntity, Mapping[QuotaKey, float | None]]:
    """Reads a change by Kafka's rules.

    Raises:
        BrokerError: INVALID_REQUEST.
    """
    entity = _entity(wish.entity)
    return entity, _alterations(wish.ops, is_of_address=entity.ip is not None)


def names_of(entity: QuotaEntity) -> dict[str, str | None]:
    """An entity by the types of its parts; None is the default."""
    parts = {USER: entity.user, CLIENT_ID: entity.client_id, IP: entity.ip}
    return {kind: name or None for kind, name in parts.items() if name is not None}


def is_meant(
    entity: QuotaEntity, wanted: Mapping[str, Callable[[str | None], bool]], *, strict: bool
) -> bool:
    """Whether an entity has every named part as wanted; if `strict`, and no other part."""
    names = names_of(entity)
    if not wanted.keys() <= names.keys() or (strict and wanted.keys() != names.keys()):
        return False
    return all(is_as_wanted(names[kind]) for kind, is_as_wanted in wanted.items())


def _entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    names = dict(parts)
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    if len(names) != len(parts):
        raise _invalid("An entity type is named twice.")
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if IP in names:
        if len(names) > 1:
            raise _invalid("Invalid empty client quota entity")
        _check_address(names[IP])
        return QuotaEntity(ip=names[IP] or DEFAULT)
    user, client_id = (
        (names[kind] or DEFAULT) if kind in names else None for kind in (USER, CLIENT_ID)
    )
    return QuotaEntity(user, client_id)


def _check_address(name: str | None) -> None:
    try:
        if name is not None:
            plain_ip(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP or resolvable host.") from None


def _alterations(
    ops: Sequence[tuple[str, float | None]], *, is_of_address: bool
) -> dict[QuotaKey, float | None]:
    keys = {each.value: each for each in QuotaKey if _is_of_address(each) == is_of_address}
    found: dict[QuotaKey, float | None] = {}
    for name, value in ops:
        key = keys.get(name)
        if key is None:
            raise _invalid(f"Invalid configuration key {name}")
        if key in found:
            raise _invalid(f"Duplicate quota key {name}")
        if value is not None:
            _check(key, value)
        found[key] = value
    return found


def _is_of_address(key: QuotaKey) -> bool:
    return key is QuotaKey.CONNECTION_CREATION


def _check(key: QuotaKey, value: float) -> None:
    if not isfinite(value) or value <= 0:
        raise _invalid(f"Quota {key.value} must be greater than 0")
    largest = _LARGEST.get(key)
    if largest is None:
        return
    kind = "Long" if key is not QuotaKey.CONNECTION_CREATION else "Int"
    if value > largest or abs(round(value) - value) > _EPSILON:
        raise _invalid(f"Configuration {key.value} must be a {kind} value")


def _invalid(text: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, text)
