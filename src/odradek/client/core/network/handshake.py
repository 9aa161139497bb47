"""The exchange of two sides before the first request of a user, as a generator.

It yields each request, is sent the answer, and returns the broker's versions. Driven by
`ConnectionCore`, so both shells shake hands alike. A login is another such generator, which comes
behind this one, and again before a session ends.
"""

from collections.abc import Generator
from concurrent.futures import Future
from typing import NamedTuple, Protocol, TypeVar

from odradek.client.apis import API_VERSIONS, ClientApi, VersionRanges, agree
from odradek.client.core import api_versions
from odradek.client.errors import raise_for
from odradek.errors import ErrorCode
from odradek.protocol.primitives import Buffer
from odradek.version import VERSION

T = TypeVar("T")


class Answer(NamedTuple):
    """A response: its frame, and where in it the body begins."""

    frame: memoryview
    position: int


class Question(NamedTuple):
    """A request of the handshake."""

    api: ClientApi
    version: int
    body: Buffer


Exchange = Generator[Question, Answer, T]
LoginSteps = Exchange[int]


class LoginTerms(Protocol):
    """The terms of a login; see `core.login`."""

    def begin(self, versions: VersionRanges) -> LoginSteps:
        """Yields requests and is sent answers; returns the session's lifetime in milliseconds, or
        0."""
        ...


class LoginSource(Protocol):
    """Gives the terms of each login."""

    @property
    def limit_ms(self) -> int:
        """The time-out of `fetch`."""
        ...

    def at_hand(self) -> LoginTerms | None:
        """The terms, if no request is needed for them."""
        ...

    def fetch(self) -> Future[LoginTerms]:
        """Asks for the terms on a thread; fails with a `KafkaError`."""
        ...


def handshake() -> Exchange[VersionRanges]:
    """The versions of every API that the broker speaks, by key.

    Raises:
        KafkaError: the broker refuses.
        ProtocolError: its answer is malformed.
    """
    version = API_VERSIONS.max_version
    supported = yield from _ask_versions(version)
    if supported.error_code == ErrorCode.UNSUPPORTED_VERSION:
        # An older broker, whose answer has its highest version; the oldest send none.
        known = {API_VERSIONS.key: (0, 0), **supported.ranges}
        supported = yield from _ask_versions(agree(API_VERSIONS, known))
    raise_for(supported.error_code, "the broker refuses to tell its versions")
    return supported.ranges


def _ask_versions(version: int) -> Exchange[api_versions.SupportedVersions]:
    body = api_versions.encode_request(version, VERSION)
    answer = yield Question(API_VERSIONS, version, body)
    return api_versions.decode_response(version, answer.frame, answer.position)
