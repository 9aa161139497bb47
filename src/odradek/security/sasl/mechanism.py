"""The interface of a mechanism to the code that carries its messages, and how it refuses."""

from typing import Final, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""Those that are served; GSSAPI, which is Kerberos, is not."""


class SaslError(Exception):
    """A message of the other side is refused. A client hears no reason, only the log has it."""


class SaslAuthenticationError(SaslError):
    """As `SaslError`, with a text for the client."""


class SaslServer(Protocol):
    """A broker's side of one login. After an exception it is of no use any more."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has proved who it is."""
        ...

    @property
    def authorization_id(self) -> str:
        """The user's name, once it is complete."""
        ...

    @property
    def is_by_token(self) -> bool:
        """Whether the login used a delegation token instead of a password."""
        ...

    @property
    def expires_wall_ms(self) -> int | None:
        """When the credential expires; None if it does not."""
        ...

    def evaluate(self, response: bytes) -> bytes:
        """Takes a message of the client; returns the next one for it, which may be empty.

        Raises:
            SaslError: the client is refused.
        """
        ...


class SaslClient(Protocol):
    """A client's side of one login."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is to be said, and the broker has proved itself where it can."""
        ...

    def first(self) -> bytes:
        """The message that begins."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Takes a message of the broker; returns the next one for it, None if there is none.

        Raises:
            SaslError: the broker is not to be trusted, or has refused.
        """
        ...
