"""Quotas of clients."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from odradek.client.errors import raise_for

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Whose quotas: pairs of a type (`user`, `client-id`, `ip`) and a name, None for the default."""
_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


class QuotaCalls(AdminBase):
    """Calls about quotas of clients."""

    async def describe_client_quotas(
        self, parts: Iterable[tuple[str, str | None] | str] = (), *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Describes the quotas of entities that have all these parts, where a type alone matches
        any of that type; with `strict`, only of those without other parts.

        Raises:
            KafkaError: the caller may not, or what is asked for is refused.
        """
        components = [_component(part) for part in parts]

        async def attempt() -> dict[QuotaEntity, dict[str, float]]:
            values = {"components": components, "strict": strict}
            answer = await self._cluster.call(None, DESCRIBE_CLIENT_QUOTAS, values)
            raise_for(int(answer.error_code), answer.error_message)
            return {
                tuple((each.entity_type, each.entity_name) for each in entry.entity): {
                    value.key: float(value.value) for value in entry.values
                }
                for entry in answer.entries or ()
            }

        return await self._cluster.retrying(attempt)

    async def alter_client_quotas(
        self,
        alterations: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> dict[QuotaEntity, Any]:
        """Sets quotas, or removes those whose value is None; the result is None for each entity, or
        the `KafkaError` of its refusal."""

        async def attempt(pending: list[QuotaEntity]) -> dict[QuotaEntity, Any]:
            entries = [_entry_fields(entity, alterations[entity]) for entity in pending]
            values = {"entries": entries, "validate_only": validate_only}
            answer = await self._cluster.call(None, ALTER_CLIENT_QUOTAS, values)
            asked = {frozenset(entity): entity for entity in pending}
            return {
                entity: outcome(entry.error_code, None, entry.error_message)
                for entry in answer.entries
                if (entity := asked.get(_parts(entry))) is not None
            }

        return await self._retrying(alterations, attempt)


def _parts(entry: Any) -> frozenset[tuple[str, str | None]]:
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity)


def _component(part: tuple[str, str | None] | str) -> dict[str, object]:
    if isinstance(part, str):
        return {"entity_type": part, "match_type": _ANY, "match": None}
    kind, name = part
    match_type = _DEFAULT if name is None else _EXACT
    return {"entity_type": kind, "match_type": match_type, "match": name}


def _entry_fields(entity: QuotaEntity, quotas: Mapping[str, float | None]) -> dict[str, object]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in quotas.items()
        ],
    }
