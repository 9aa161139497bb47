"""The topics of groups whose coordinator assigns, and whether they have changed.

`TopicMetadata` has a version for a broker's lifetime, which is cheap to compare; the hash in a
group's record is valid across restarts and brokers.
"""

from typing import Final

from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta, MetadataImage

_HASH_BYTES: Final = 8


class TopicMetadata:
    """One for a broker. `version` rises when topics are created or deleted or get partitions; an
    assignment does not depend on leaders."""

    def __init__(self, cache: MetadataCache) -> None:
        self.version = 0
        self._cache = cache
        cache.on_published(self._on_published)

    @property
    def image(self) -> MetadataImage:
        """The published image."""
        return self._cache.image

    def _on_published(self, delta: MetadataDelta) -> None:
        grown = any(
            len(topic.partitions) != len(delta.previous.topics[topic.name].partitions)
            for topic in delta.topics_changed
        )
        if delta.topics_added or delta.topics_removed or grown:
            self.version += 1


def topics_hash(names: set[str], image: MetadataImage) -> int:
    """A hash that changes when a topic comes, goes or gets partitions."""
    # Imported here: a broker without groups of KIP-848 needs none of it, nor its library.
    from hashlib import blake2b

    digest = blake2b(digest_size=_HASH_BYTES)
    for name in sorted(names):
        topic = image.topic(name)
        if topic is not None:
            digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
