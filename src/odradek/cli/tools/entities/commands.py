"""`odradek configs` of users, clients and addresses: their quotas, and the credentials of users."""

from collections.abc import Mapping, Sequence

from odradek.cli.tools.connection import print_json
from odradek.cli.tools.entities import client_quotas, scram_users
from odradek.cli.tools.entities.keys import ENTITIES, MECHANISMS, Entity, check_keys, plural
from odradek.client import Admin


async def describe_entity(admin: Admin, entity: Entity, output: str) -> int:
    """Prints the quotas of the entity, or of all of its types, and the credentials of users."""
    quotas = await client_quotas.described(admin, entity)
    users = await scram_users.described(admin, entity[0][1]) if _has_logins(entity) else {}
    if output == "json":
        print_json(client_quotas.as_json(quotas) + scram_users.as_json(users))
    else:
        client_quotas.print_described(quotas)
        scram_users.print_described(users)
    return 0


def _has_logins(entity: Entity) -> bool:
    """Whether the entity is a user, or all users; not the default of users."""
    return len(entity) == 1 and entity[0][0] == ENTITIES["users"] and entity[0][1] != ""


async def alter_entity(
    admin: Admin, entity: Entity, added: Mapping[str, str], deleted: Sequence[str]
) -> int:
    """Sets and removes quotas, or credentials of a user.

    Raises:
        ValueError: a key or a value is illegal.
        KafkaError: the broker refuses.
    """
    check_keys(entity, added, deleted)
    name = entity[0][1]
    if name and any(key in MECHANISMS for key in (*added, *deleted)):
        await scram_users.alter(admin, name, added, deleted)
    else:
        await client_quotas.alter(admin, entity, added, deleted)
    whose = plural(entity)
    if name:
        print(f"Completed updating config for {whose[:-1]} {name}.")
    else:
        print(f"Completed updating default config for {whose} in the cluster.")
    return 0
