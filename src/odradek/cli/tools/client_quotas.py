"""Quotas of users, client ids and addresses, as `kafka-configs.sh` shows and sets them; credentials
of users are not among them."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.cli.tools.connection import print_json
from odradek.cli.tools.wording.java_values import java_float
from odradek.client import Admin
from odradek.client.aio.admin.quotas import QuotaEntity

ENTITIES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
"""The types of entities with quotas: as Kafka's tool names them, and as its requests do."""
_KEYS: Final = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    "controller_mutation_rate",
)
_DOUBLE_DIGITS: Final = 17
_OF_ADDRESSES: Final = ("connection_creation_rate",)
_NOUNS: Final = {"user": "user-principal", "client-id": "client-id", "ip": "ip"}


def entity_of(types: Sequence[str], names: Sequence[str | None]) -> list[tuple[str, str | None]]:
    """The entity that the flags name, in the order of the types: an empty name is the default, and
    a missing one is None."""
    given = [*names, *([None] * len(types))]
    return [(ENTITIES[kind], name) for kind, name in zip(types, given, strict=False)]


async def describe(
    admin: Admin, entity: Sequence[tuple[str, str | None]], arguments: argparse.Namespace
) -> int:
    """Prints the quotas of the named entity, or of all of these types."""
    parts = [kind if name is None else (kind, name or None) for kind, name in entity]
    found = await admin.describe_client_quotas(parts, strict=True)
    if arguments.output == "json":
        print_json([{"entity": dict(each), "quotas": quotas} for each, quotas in found.items()])
        return 0
    for each, quotas in found.items():
        values = ", ".join(
            f"{key}={java_float(value, _DOUBLE_DIGITS)}" for key, value in quotas.items()
        )
        print(f"Quota configs for {_words(each)} are {values}")
    return 0


async def alter(
    admin: Admin,
    entity: Sequence[tuple[str, str | None]],
    added: Mapping[str, str],
    deleted: Sequence[str],
) -> int:
    """Sets quotas and takes them away.

    Raises:
        ValueError: a key is none of a quota, or a value no number.
        KafkaError: the broker refuses.
    """
    keys = _OF_ADDRESSES if entity[0][0] == ENTITIES["ips"] else _KEYS
    unknown = [name for name in (*added, *deleted) if name not in keys]
    if unknown:
        raise ValueError(
            f"Only quota configs can be added for '{_plural(entity)}' using --bootstrap-server. "
            f"Unexpected config names: Set({', '.join(unknown)})"
        )
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
    plural, name = _plural(entity), entity[0][1]
    if name:
        print(f"Completed updating config for {plural[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {plural} in the cluster.")
    return 0


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"Cannot parse quota configuration value for {name}: {text}") from None


def _plural(entity: Sequence[tuple[str, str | None]]) -> str:
    return next(plural for plural, kind in ENTITIES.items() if kind == entity[0][0])


def _words(entity: QuotaEntity) -> str:
    names = dict(entity)
    return ", ".join(
        f"the default {noun}" if names[kind] is None else f"{noun} '{names[kind]}'"
        for kind, noun in _NOUNS.items()
        if kind in names
    )
