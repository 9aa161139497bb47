"""The paths of client quotas in ZooKeeper: among the settings of users, client ids and addresses.
Pure.

A user's node also has its credentials, and quotas that are not served here: both are kept.
"""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Final
from urllib.parse import unquote

from odradek.client_quota import DEFAULT, QuotaEntity, QuotaKey, Quotas
from odradek.metadata.sanitized import sanitized
from odradek.metadata.zookeeper import znodes

USERS: Final = "users"
CLIENTS: Final = "clients"
IPS: Final = "ips"
_DEFAULT_NODE: Final = "<default>"
_KEYS: Final = {key.value: key for key in QuotaKey}


def entity_path(entity: QuotaEntity) -> str:
    """The entity as announcements name it."""
    if entity.ip is not None:
        return f"{IPS}/{_node_name(entity.ip)}"
    client = "" if entity.client_id is None else f"{CLIENTS}/{_node_name(entity.client_id)}"
    if entity.user is None:
        return client
    user = f"{USERS}/{_node_name(entity.user)}"
    return f"{user}/{client}" if client else user


def quota_entity(path: str) -> QuotaEntity | None:
    """The entity that an announcement names; None for topics, brokers and the like."""
    match path.split("/"):
        case ["users", user]:
            return QuotaEntity(user=_name(user))
        case ["clients", client_id]:
            return QuotaEntity(client_id=_name(client_id))
        case ["ips", ip]:
            return QuotaEntity(ip=_name(ip))
        case ["users", user, "clients", client_id]:
            return QuotaEntity(_name(user), _name(client_id))
        case _:
            return None


def quotas_path(entity: QuotaEntity) -> str:
    """The path of an entity's quotas."""
    return f"{znodes.CONFIG}/{entity_path(entity)}"


def read_settings(path: str, data: bytes) -> dict[str, str]:
    """All settings of an entity; a folder alone has none. Raises `ZnodeError`."""
    return znodes.read_config(path, data) if data else {}


def quotas_in(settings: Mapping[str, str]) -> Quotas:
    """The quotas among settings; a value that is no number, or no usable one, is ignored."""
    found = {}
    for name, text in settings.items():
        key = _KEYS.get(name)
        if key is not None:
            try:
                value = float(text)
            except ValueError:
                continue
            if isfinite(value) and value > 0:
                found[key] = value
    return found


def with_quotas(
    settings: Mapping[str, str], alterations: Mapping[QuotaKey, float | None]
) -> dict[str, str]:
    """The settings with quotas set, or removed if the value is None."""
    texts = {key.value: value for key, value in alterations.items()}
    kept = {name: text for name, text in settings.items() if name not in texts}
    return kept | {name: _number(value) for name, value in texts.items() if value is not None}


def change_json(entity: QuotaEntity) -> bytes:
    """Tells all brokers to look at the quotas of an entity."""
    return json.dumps(
        {"version": 2, "entity_path": entity_path(entity)}, separators=(",", ":")
    ).encode()


def _number(value: float) -> str:
    return str(round(value)) if value == round(value) else str(value)


def _node_name(name: str) -> str:
    return _DEFAULT_NODE if name == DEFAULT else sanitized(name)


def _name(node_name: str) -> str:
    return DEFAULT if node_name == _DEFAULT_NODE else unquote(node_name)
