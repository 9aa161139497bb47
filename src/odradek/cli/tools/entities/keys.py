"""The keys that `odradek configs` sets for users, clients and addresses; others are refused in the
words of `kafka-configs.sh`."""

from collections.abc import Collection, Sequence
from typing import Final

ENTITIES: Final = {"users": "user", "clients": "client-id", "ips": "ip"}
"""The types of entities: as Kafka's tool names them, and as its requests do."""
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
"""The keys of a user's credentials."""
_QUOTAS: Final = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage"),
    "controller_mutation_rate",
)
_OF_ADDRESSES: Final = ("connection_creation_rate",)
_HERE: Final = "using --bootstrap-server"

Entity = Sequence[tuple[str, str | None]]
"""Types, as requests name them, with names: empty for the default, None where none is given."""


def plural(entity: Entity) -> str:
    """The type of an entity, the first of two, as the tool names it."""
    return next(each for each, kind in ENTITIES.items() if kind == entity[0][0])


def check_keys(entity: Entity, added: Collection[str], deleted: Collection[str]) -> None:
    """Refuses keys that an entity does not have, and those that cannot be set together.

    Raises:
        ValueError: in the words of Kafka's tool.
    """
    types = [kind for kind, _ in entity]
    if types == ["ip"]:
        _check_of_addresses([*added, *deleted])
    elif types != ["user"]:
        _refuse_others("quota", "clients", _QUOTAS, added, deleted)
    else:
        both = (*_QUOTAS, *MECHANISMS)
        _refuse_others("quota and SCRAM credential", "users", both, added, deleted)
        _check_credentials(entity[0][1], {*added, *deleted})


def _check_of_addresses(names: Collection[str]) -> None:
    if unknown := [name for name in names if name not in _OF_ADDRESSES]:
        raise ValueError(
            f"Only connection quota configs can be added for 'ips' {_HERE}. "
            f"Unexpected config names: {', '.join(unknown)}"
        )


def _refuse_others(
    what: str, whose: str, known: Sequence[str], added: Collection[str], deleted: Collection[str]
) -> None:
    for done, names, list_name in (("added", added, "Set"), ("deleted", deleted, "ArrayBuffer")):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(
                f"Only {what} configs can be {done} for '{whose}' {_HERE}. "
                f"Unexpected config names: {list_name}({', '.join(unknown)})"
            )


def _check_credentials(name: str | None, keys: Collection[str]) -> None:
    if not any(key in MECHANISMS for key in keys):
        return
    if not name:
        raise ValueError(
            "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
            f"Credentials {_HERE}."
        )
    if any(key in _QUOTAS for key in keys):
        raise ValueError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' "
            f"{_HERE}."
        )
