"""`TopicMetadata`: the topics as consumer groups look at them, and whether they have changed."""

from odradek.metadata.cache import MetadataCache
from odradek.metadata.image import MetadataDelta, MetadataImage


class TopicMetadata:
    """One for a broker. `version` rises when topics come, go or get partitions; who leads a
    partition is of no interest to an assignment."""

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
