"""Delegation tokens in the image: each is a resource with one setting."""

from typing import Final

from odradek.metadata.image import ConfigResource
from odradek.model import ConfigResourceType

INFORMATION: Final = "information"
"""The setting; its value is what Kafka 3.9 keeps in ZooKeeper of a token."""


def token_resource(token_id: str) -> ConfigResource:
    """The resource of a token."""
    return ConfigResource(ConfigResourceType.DELEGATION_TOKEN, token_id)
