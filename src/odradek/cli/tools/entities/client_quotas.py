"""Quotas of users, client ids and addresses, as `kafka-configs.sh` shows and sets them."""

from collections.abc import Mapping, Sequence
from typing import Final

from odradek.cli.tools.entities.keys import Entity
from odradek.cli.tools.wording.java_values import java_float
from odradek.client import Admin
from odradek.client.aio.admin.quotas import QuotaEntity

_DOUBLE_DIGITS: Final = 17
_NOUNS: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


Described = Mapping[QuotaEntity, Mapping[str, float]]


async def described(admin: Admin, entity: Entity) -> Described:
    """Returns the quotas of the named entity, or of all entities of these types."""
    parts = [kind if name is None else (kind, name or None) for kind, name in entity]
    return await admin.describe_client_quotas(parts, strict=True)


def print_described(found: Described) -> None:
    """Prints a line for each entity."""
    for each, quotas in found.items():
        values = ", ".join(
            f"{key}={java_float(value, _DOUBLE_DIGITS)}" for key, value in quotas.items()
        )
        print(f"Quota configs for {_words(each)} are {values}")


def as_json(found: Described) -> list[dict[str, object]]:
    """An object for each entity."""
    return [{"entity": dict(each), "quotas": quotas} for each, quotas in found.items()]


async def alter(
    admin: Admin, entity: Entity, added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """Sets and removes quotas.

    Raises:
        ValueError: a value is not a number, or a quota to remove does not exist.
        KafkaError: the broker refuses.
    """
    changes: dict[str, float | None] = {name: _number(name, text) for name, text in added.items()}
    changes |= dict.fromkeys(deleted)
    named: QuotaEntity = tuple((kind, name or None) for kind, name in entity)
    if deleted:
        there = await admin.describe_client_quotas(named, strict=True)
        held = next(iter(there.values()), {})
        if missing := [name for name in deleted if name not in held]:
            raise ValueError(f"Invalid config(s): {','.join(missing)}")
    error = (await admin.alter_client_quotas({named: changes}))[named]
    if error is not None:
        raise error


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"Cannot parse quota configuration value for {name}: {text}") from None


def _words(entity: QuotaEntity) -> str:
    names = dict(entity)
    return ", ".join(
        f"the default {noun}" if names[kind] is None else f"{noun} '{names[kind]}'"
        for kind, noun in _NOUNS.items()
        if kind in names
    )
