"""One call of a task, as its record has it: JSON, so that other languages may call and look."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.client.core.consuming.consumer_record import ConsumerRecord
from odradek.tasks.errors import UnreadableCall

_SCHEDULED_FOR: Final = "scheduled-for"


class Call(NamedTuple):
    """The call of a task by its name. `attempt` counts from 0; `repeats` says that its id names
    many calls, one for each time at which it is due."""

    id: str
    task: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    attempt: int = 0
    wants_result: bool = False
    repeats: bool = False


def encode(call: Call) -> bytes:
    """The value of a call's record.

    Raises:
        TypeError: an argument cannot be written as JSON.
    """
    return json.dumps(call._asdict()).encode()


def decode(record: ConsumerRecord) -> Call:
    """Reads a call. A call of a repetition gets its own id, from the time at which it was due.

    Raises:
        UnreadableCall: the record is none.
    """
    try:
        call = Call(**json.loads(record.value))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnreadableCall(f"not a call: {error}") from None
    if not (
        isinstance(call.id, str)
        and isinstance(call.task, str)
        and isinstance(call.args, list)
        and isinstance(call.kwargs, dict)
        and isinstance(call.attempt, int)
    ):
        raise UnreadableCall(f"not a call: {record.value!r:.100}")
    try:
        call.id.encode()
    except UnicodeEncodeError:
        raise UnreadableCall(f"not a call: {call.id!r:.100} is no id") from None
    if not call.repeats:
        return call
    due = dict(record.headers).get(_SCHEDULED_FOR) or b"now"
    return call._replace(id=f"{call.id}@{due.decode(errors='replace')}", repeats=False)
