"""`LastErrors`: the requests that were last answered with an error, to explain failures.

Answers are kept as they were sent, the last few small ones of each API, and only read when
somebody asks: a request costs one append to a queue.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.handlers.api import Api
from odradek.handlers.request import Request, RequestObserver
from odradek.handlers.table import API_TABLE
from odradek.handlers.topic_names import topic_name
from odradek.metadata.image import MetadataImage
from odradek.protocol import messages
from odradek.protocol.header import response_header_version
from odradek.protocol.primitives import Buffer, ProtocolError

KEPT_ANSWERS: Final = 32
KEPT_BYTES: Final = 4096
_CORRELATION_BYTES: Final = 4
_EXPECTED: Final = frozenset({ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED})
_PLACES: Final = ("name", "topic", "topic_name", "group_id", "key", "transactional_id")
_INDEXES: Final = ("partition_index", "partition", "index")


class AnsweredError(NamedTuple):
    """An error that a request was answered with; `place` is the topic, partition or group."""

    api: str
    client_id: str
    error: ErrorCode
    place: str
    number: int


class _Answer(NamedTuple):
    api: Api
    version: int
    client_id: str | None
    buffers: list[Buffer]


class LastErrors(RequestObserver):
    """Told of every request of the brokers that it was given to."""

    def __init__(self) -> None:
        self._answers: Final[dict[int, deque[_Answer]]] = {}

    def completed(self, request: Request) -> None:
        """Keeps a small answer; an answer with records has no error."""
        buffers: list[Buffer] | None = getattr(request.exchange, "answer", None)
        if buffers is None or sum(map(len, buffers)) > KEPT_BYTES:
            return
        kept = self._answers.get(request.api_key)
        if kept is None:
            kept = self._answers[request.api_key] = deque(maxlen=KEPT_ANSWERS)
        api = API_TABLE[request.api_key]
        kept.append(_Answer(api, request.api_version, request.client_id, buffers))

    def read(self, image: MetadataImage) -> list[AnsweredError]:
        """The errors among the answers that are kept, each with how often it was given."""
        found: dict[tuple[str, str, ErrorCode, str], int] = {}
        for answers in self._answers.values():
            for answer in tuple(answers):
                for code, place in _errors(answer, image):
                    key = (answer.api.name, answer.client_id or "", code, place)
                    found[key] = found.get(key, 0) + 1
        return [AnsweredError(*key, count) for key, count in found.items()]


def _errors(answer: _Answer, image: MetadataImage) -> Iterator[tuple[ErrorCode, str]]:
    data = memoryview(b"".join(answer.buffers))
    api, version = answer.api, answer.version
    is_tagged = response_header_version(api.key, version, api.flexible_from) == 1
    position = _CORRELATION_BYTES + is_tagged
    try:
        body = messages.decode_response(api.key, version, data, position)
    except (ProtocolError, LookupError):
        return  # a version from before Kafka's definitions
    yield from _errors_in(body, "", image)


def _errors_in(message: Any, place: str, image: MetadataImage) -> Iterator[tuple[ErrorCode, str]]:
    fields = {name: getattr(message, name) for name in message.__dataclass_fields__}
    name = next((fields[each] for each in _PLACES if isinstance(fields.get(each), str)), None)
    if name is None and isinstance(fields.get("topic_id"), UUID):
        name = topic_name(image, None, fields["topic_id"])
    index = next((fields[each] for each in _INDEXES if isinstance(fields.get(each), int)), None)
    here = str(name) if name is not None else place
    if index is not None:
        here = f"{here}-{index}"
    code = fields.get("error_code")
    if isinstance(code, int) and ErrorCode(code) not in _EXPECTED:
        yield ErrorCode(code), here
    for value in fields.values():
        if isinstance(value, tuple):
            for each in value:
                if hasattr(each, "__dataclass_fields__"):
                    yield from _errors_in(each, here, image)
