"""`MetadataCache`: the image that requests are answered from.

A change becomes visible here last. First the store has committed it, then the listeners of the
store have acted on it (logs are open, leaders are made), and only then is its image published: a
partition in a client's metadata can be appended to.
"""

from collections.abc import Callable

from odradek.metadata.image import NO_CONTROLLER, MetadataDelta, MetadataImage


class MetadataCache:
    """Holds the published image. Written by the store only.

    `is_told` is False while a new broker of a cluster has received nothing from its controller: its
    image has the live brokers, but no topics. `is_current` is also False from the end of a session
    until the controller has sent everything again: clients are still answered from the image, but
    it may lack newer topics. `controller_id` is the last known controller: while there is none,
    clients still get this one, as from Kafka. It refuses them, and they ask again; librdkafka waits
    for its whole time-out if there is none.
    """

    def __init__(self, image: MetadataImage | None = None) -> None:
        self.image = MetadataImage("") if image is None else image
        self.is_told = True
        self.is_current = True
        self.controller_id = self.image.controller_id
        self._listeners: list[Callable[[MetadataDelta], None]] = []
        self._told_listeners: list[Callable[[], None]] = []

    def publish(self, delta: MetadataDelta) -> None:
        """Shows the delta's image to clients, then calls the listeners."""
        self.image = delta.image
        if delta.image.controller_id != NO_CONTROLLER:
            self.controller_id = delta.image.controller_id
        for listener in tuple(self._listeners):
            listener(delta)

    def on_published(self, listener: Callable[[MetadataDelta], None]) -> None:
        """Calls `listener` after every publication, in the order of subscription."""
        self._listeners.append(listener)

    def tell(self) -> None:
        """Marks the published image as complete and from a controller."""
        self.is_current = True
        if self.is_told:
            return
        self.is_told = True
        for listener in tuple(self._told_listeners):
            listener()

    def on_told(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the broker has received its first metadata."""
        self._told_listeners.append(listener)
