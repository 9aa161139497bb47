"""`Fault`: one thing that goes wrong, for whom, and how often."""

from collections.abc import Callable, Collection
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.errors import ErrorCode
from odradek.handlers.table import API_TABLE
from odradek.suggestions import chosen

if TYPE_CHECKING:
    from odradek.server.faults.named import Named

_KEYS: Final = {api.name: api.key for api in API_TABLE.values()}
_ERRORS: Final = {code.name: code for code in ErrorCode if code is not ErrorCode.NONE}


class Effect(Enum):
    """The effect of a fault on a request, or on the broker."""

    REFUSE = "fail"
    DELAY_REQUEST = "delay"
    DELAY_ANSWER = "delay the answers of"
    DROP_REQUEST = "drop the connection before"
    DROP_ANSWER = "drop the connection after"
    CUT_ANSWER = "cut the answers of"
    FULL_DISK = "full disk"


class Filter(NamedTuple):
    """The requests that a fault applies to: those that match every field that is set."""

    apis: frozenset[int] | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    client_id: str | None = None
    broker_id: int | None = None

    @property
    def looks_inside(self) -> bool:
        """Whether the filter has to look into the body of a request."""
        return self.topic is not None or self.group is not None

    def admits(self, broker_id: int, api_key: int, client_id: str | None) -> bool:
        """Whether the header of a request matches."""
        return (
            (self.apis is None or api_key in self.apis)
            and (self.client_id is None or client_id == self.client_id)
            and (self.broker_id is None or broker_id == self.broker_id)
        )

    def holds(self, named: "Named") -> bool:
        """Whether the body of a request matches."""
        if self.group is not None and self.group not in named.groups:
            return False
        return self.topic is None or named.has_topic(self.topic, self.partition)

    def in_words(self) -> str:
        """For people to read."""
        names = sorted(API_TABLE[key].name for key in self.apis) if self.apis is not None else ()
        words = [", ".join(names) if names else "every request"]
        if self.topic is not None:
            index = "" if self.partition is None else f"-{self.partition}"
            words.append(f"of topic {self.topic}{index}")
        if self.group is not None:
            words.append(f"of group {self.group}")
        if self.client_id is not None:
            words.append(f"from client {self.client_id}")
        if self.broker_id is not None:
            words.append(f"at broker {self.broker_id}")
        return " ".join(words)


class Fault:
    """A fault in force, until it has struck `times` times, `end` is called or its `with` ends.

    `struck` counts how often it has.
    """

    def __init__(
        self,
        effect: Effect,
        filter: Filter,
        end: "Callable[[Fault], None]",
        *,
        times: int | None = None,
        error: ErrorCode = ErrorCode.NONE,
        delay_ms: int = 0,
        name: str = "",
    ) -> None:
        if times is not None and times < 1:
            raise ValueError(f"a fault strikes at least once, not {times} times")
        if delay_ms < 0:
            raise ValueError(f"a delay is at least 0 ms, not {delay_ms}")
        self.effect: Final = effect
        self.filter: Final = filter
        self.max_strikes: Final = times
        self.error: Final = error
        self.delay_ms: Final = delay_ms
        self.struck = 0
        self._end: Final = end
        self._name: Final = name

    def __repr__(self) -> str:
        return f"<fault: {self}>"

    def __str__(self) -> str:
        words = [self._name or self._effect_in_words()]
        if self.max_strikes is not None:
            words.append(f"{self.max_strikes} times")
        return f"{', '.join(words)} (so far {self.struck})"

    def _effect_in_words(self) -> str:
        words = self.effect.value
        if self.effect is not Effect.FULL_DISK:
            words = f"{words} {self.filter.in_words()}"
        if self.effect is Effect.REFUSE:
            words += f" with {self.error.name}"
        if self.delay_ms:
            words += f" by {self.delay_ms} ms"
        return words

    @property
    def is_used_up(self) -> bool:
        """Whether the fault has struck as often as `times` allows."""
        return self.max_strikes is not None and self.struck >= self.max_strikes

    def end(self) -> None:
        """Takes the fault out of force; a second call does nothing."""
        self._end(self)

    def __enter__(self) -> "Fault":
        return self

    def __exit__(self, *error: object) -> None:
        self.end()


def api_keys(names: str | Collection[str] | None) -> frozenset[int] | None:
    """The APIs of these names; None, which is all of them, for None.

    Raises:
        ValueError: there is none of a name.
        TypeError: these are no names.
    """
    if names is None:
        return None
    if not isinstance(names, Collection):
        raise TypeError(
            f"api is the name of an API, or a list of names, and not of type {type(names).__name__}"
        )
    wanted = (names,) if isinstance(names, str) else names
    return frozenset(_KEYS[chosen("API", name, _KEYS)] for name in wanted)


def error_code(error: str | ErrorCode) -> ErrorCode:
    """Kafka's error of that name.

    Raises:
        ValueError: there is none.
    """
    if isinstance(error, ErrorCode):
        return error
    return _ERRORS[chosen("error", error, _ERRORS)]
