"""Applies a change of client quotas to an image. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.client_quota import QuotaEntity, QuotaKey, Quotas
from odradek.metadata.changes import Change
from odradek.metadata.image import MetadataDelta, MetadataImage

NO_QUOTAS: Final[Quotas] = MappingProxyType({})
QuotaAlterations = Mapping[QuotaEntity, Mapping[QuotaKey, float | None]]
"""By entity what is set and, where the value is None, taken away."""


def alter_client_quotas(image: MetadataImage, altered: QuotaAlterations) -> Change[None]:
    """Plans changes of quotas; if nothing changes, nothing is written."""
    changed: dict[QuotaEntity, Quotas] = {}
    for entity, alterations in altered.items():
        before = quotas_of(image, entity)
        merged: dict[QuotaKey, float | None] = {**before, **alterations}
        after = {key: value for key, value in merged.items() if value is not None}
        if after != dict(before):
            changed[entity] = MappingProxyType(after)
    if not changed:
        return Change(None)
    after_image = image.with_client_quotas(changed)
    return Change(None, MetadataDelta(image, after_image, client_quotas=changed))


def quotas_of(image: MetadataImage, entity: QuotaEntity) -> Quotas:
    """The quotas of an entity."""
    return image.client_quotas.get(entity, NO_QUOTAS)
