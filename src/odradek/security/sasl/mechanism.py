"""The interface of a mechanism to the code that carries its messages, and how it refuses."""

from typing import Final, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""Those that are served; GSSAPI, which is Kerberos, is not."""


class SaslError(Exception):
    """A message of the other side is refused. Only the log has the reason, not the client."""


class SaslAuthenticationError(SaslError):
    """Like `SaslError`, with a text for the client."""


class SaslServer(Protocol):
    """A broker's side of one login. After an exception it cannot be used any more."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has proved its identity."""
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
        """Whether the exchange is complete, and the broker has proved its identity, if the
        mechanism can."""
        ...

    def first(self) -> bytes:
        """The message that begins."""
        ...

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Takes a message of the broker; returns the next one for it, None if there is none.

        Raises:
            SaslError: the broker cannot be trusted, or has refused.
        """
        ...
