"""Builds the authorizer, if the broker has one, and the parts that depend on it. Without one
nothing of it is imported, and every request goes straight to its handler."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from odradek.config import BrokerConfig
from odradek.handlers.api import Api
from odradek.metadata.cache import MetadataCache
from odradek.metadata.store import MetadataStore

if TYPE_CHECKING:
    from odradek.controller.acl_control import AclControl
    from odradek.security.authorizer import Authorizer


class Authorization:
    """The authorizer of a broker, if it has one; follows the metadata from its first image on."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._metadata: Final = metadata
        self.authorizer: Final = _made(config)
        if self.authorizer is not None:
            metadata.on_published(self.authorizer.apply)

    def guarded(self, apis: Mapping[int, Api]) -> Mapping[int, Api]:
        """The rows that the broker serves."""
        if self.authorizer is None:
            return apis
        from odradek.handlers.authorization import guarded

        return guarded(apis, self.authorizer)

    def control(self, store: MetadataStore) -> "AclControl | None":
        """The control that changes ACLs."""
        if self.authorizer is None:
            return None
        from odradek.controller.acl_control import AclControl

        return AclControl(store, self._metadata)


def _made(config: BrokerConfig) -> "Authorizer | None":
    if not config["authorizer.class.name"]:
        return None
    from odradek.security.authorizer import make_authorizer

    return make_authorizer(config)
