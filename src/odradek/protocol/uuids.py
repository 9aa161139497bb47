"""Ids as Kafka prints them: 22 characters of URL-safe base64."""

import base64
from uuid import UUID


def uuid_text(id: UUID) -> str:
    """The text of an id."""
    return base64.urlsafe_b64encode(id.bytes).rstrip(b"=").decode()


def uuid_of(text: str) -> UUID:
    """The id of a text; raises ValueError when it is none."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
