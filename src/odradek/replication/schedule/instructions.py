"""The headers of a record on a schedule topic: its target, and when it is due.

They are text, so that every client and command line can write them. A record is read with the
moment of its append, from which `deliver-after` and `expire-after` count: read again from the log
it says the same. The last of several headers of a name counts, so a client that sends a record
again may append headers. A record without a value takes back the schedule of its key.

`handlers.scheduled_records` checks once, when the record is produced, whether the target exists and
may be written to.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.replication.schedule.repeats import NEVER, Repeat, parse_repeat
from odradek.replication.schedule.times import Unreadable, after, parse_duration, parse_moment

DELIVER_AT: Final = "deliver-at"
DELIVER_AFTER: Final = "deliver-after"
DELIVER_TO: Final = "deliver-to"
DELIVER_KEY: Final = "deliver-key"
DELIVER_PARTITION: Final = "deliver-partition"
EXPIRE_AT: Final = "expire-at"
EXPIRE_AFTER: Final = "expire-after"
REPEAT: Final = "repeat"
REPEAT_ZONE: Final = "repeat-zone"

_NAMES: Final = frozenset(
    (
        DELIVER_AT,
        DELIVER_AFTER,
        DELIVER_TO,
        DELIVER_KEY,
        DELIVER_PARTITION,
        EXPIRE_AT,
        EXPIRE_AFTER,
        REPEAT,
        REPEAT_ZONE,
    )
)
_LARGEST_PARTITION: Final = (1 << 31) - 1
_MOST_BYTES: Final = 1024
"""Of a header: to read a long one, and to tell what is wrong with it, would hold up the broker."""

Headers = Sequence[tuple[str, bytes | None]]


class Instructions(NamedTuple):
    """The instructions of one record. `target` None leaves it to the topic, `partition` -1 to the
    key; `expires_ms` is -1 for one that does not expire."""

    due_ms: int
    target: str | None = None
    partition: int = -1
    expires_ms: int = NEVER
    repeat: Repeat | None = None


def read_instructions(
    key: bytes | None, value: bytes | None, headers: Headers, accepted_ms: int
) -> Instructions | None:
    """Reads a record that was, or shall be, appended at `accepted_ms`; None if the record cancels.

    Raises:
        Unreadable: it cannot be carried out.
    """
    given = _given(headers)
    if value is None:
        _check_cancels(key, given)
        return None
    repeat = None
    if REPEAT in given:
        repeat = parse_repeat(given[REPEAT], given.get(REPEAT_ZONE))
    elif REPEAT_ZONE in given:
        raise Unreadable("repeat-zone needs a repeat")
    due_ms = _due(given, repeat, accepted_ms)
    expires_ms = _moment(given, EXPIRE_AT, EXPIRE_AFTER, accepted_ms)
    if expires_ms is not None and expires_ms < due_ms:
        raise Unreadable(f"it would expire at {expires_ms}, before it is due at {due_ms}")
    return Instructions(
        due_ms,
        given.get(DELIVER_TO),
        _partition(given),
        NEVER if expires_ms is None else expires_ms,
        repeat,
    )


def delivered_key(key: bytes | None, headers: Headers) -> bytes | None:
    """The key with which a record is released."""
    for name, content in reversed(headers):
        if name == DELIVER_KEY:
            return content
    return key


def _given(headers: Headers) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, content in headers:
        if name in _NAMES:
            given[name] = "" if name == DELIVER_KEY else _text(name, content)
    return given


def _text(name: str, content: bytes | None) -> str:
    if content is not None and len(content) > _MOST_BYTES:
        raise Unreadable(f"the header {name} has {len(content)} bytes, {_MOST_BYTES} are the most")
    try:
        text = b"" if content is None else bytes(content)
        return text.decode().strip()
    except UnicodeDecodeError:
        raise Unreadable(f"the header {name} is no text in UTF-8") from None


def _check_cancels(key: bytes | None, given: dict[str, str]) -> None:
    if key is None:
        raise Unreadable("a record with neither key nor value schedules nothing, nor cancels it")
    if given:
        names = ", ".join(sorted(given))
        raise Unreadable(f"a record without a value cancels the schedule of its key; not {names}")


def _due(given: dict[str, str], repeat: Repeat | None, accepted_ms: int) -> int:
    due_ms = _moment(given, DELIVER_AT, DELIVER_AFTER, accepted_ms)
    if due_ms is not None:
        return due_ms
    if repeat is None:
        raise Unreadable("it has none of the headers deliver-at, deliver-after and repeat")
    first_ms = repeat(accepted_ms, accepted_ms)
    if first_ms == NEVER:
        raise Unreadable(f"repeat: {given[REPEAT]!r} never comes")
    return first_ms


def _moment(given: dict[str, str], at: str, later: str, accepted_ms: int) -> int | None:
    """The moment that one of two headers names, if there is one."""
    if at in given and later in given:
        raise Unreadable(f"of the headers {at} and {later} only one can count")
    try:
        if at in given:
            return parse_moment(given[at])
        if later in given:
            return after(accepted_ms, parse_duration(given[later]))
    except Unreadable as error:
        raise Unreadable(f"{at if at in given else later}: {error}") from None
    return None


def _partition(given: dict[str, str]) -> int:
    text = given.get(DELIVER_PARTITION)
    if text is None:
        return -1
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise Unreadable(f"deliver-partition: {text!r} is not the number of a partition")
    number = int(text)
    if number > _LARGEST_PARTITION:
        raise Unreadable(f"deliver-partition: {number} is not the number of a partition")
    return number
