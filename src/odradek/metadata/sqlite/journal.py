"""The port to durable storage: read everything once, then write small steps.

The port between the store's rules and sqlite3, so that the rules run and are tested without
a file, and so that a store in memory is the same store without a journal.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from odradek.acl import AccessControlEntry, ResourcePattern
from odradek.client_quota import QuotaEntity, Quotas
from odradek.metadata.image import ConfigResource, TopicImage

Statement: TypeAlias = tuple[str, Sequence[tuple[object, ...]]]
"""An SQL statement and the rows of parameters that it is run with."""


class StoredMetadata(NamedTuple):
    """The contents of a journal; an empty `cluster_id` means that it is new.

    `deleted_topics` may still have logs: they are removed after the commit.
    """

    cluster_id: str
    broker_epoch: int
    next_producer_id: int
    topics: Sequence[TopicImage]
    configs: Mapping[ConfigResource, Mapping[str, str]]
    deleted_topics: frozenset[UUID] = frozenset()
    controller_epoch: int = 0
    # None until one has changed: then they are those of a new cluster.
    features: Mapping[str, int] | None = None
    features_epoch: int = 0
    acls: Mapping[ResourcePattern, frozenset[AccessControlEntry]] = MappingProxyType({})
    client_quotas: Mapping[QuotaEntity, Quotas] = MappingProxyType({})


class Journal(Protocol):
    """Keeps metadata beyond the process."""

    def read(self) -> StoredMetadata:
        """Reads all metadata; raises MetadataStoreError when it cannot be understood."""
        ...

    def write(self, statements: Sequence[Statement]) -> None:
        """Runs all statements or none; durable on return. Raises MetadataStoreError."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...
