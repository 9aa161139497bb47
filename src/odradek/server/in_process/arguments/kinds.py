"""Refuses what is of a wrong kind where it was written, in a sentence that names the argument.

The sentence has the name of the type and not the value, which may hold a password: whoever
forgets an argument's name may give `users` in the place of another.
"""

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from typing import Any, Final

from odradek.clock import Clock, SystemClock

_READINGS: Final = ("monotonic_ms", "wall_ms", "keeps_pace", "wait_s", "subscribe")
_FIRST_MS: Final = 1 - 2**63
_SEEDS: Final = (int, float, str, bytes, bytearray)


def check_mapping(argument: str, what: str, value: object) -> None:
    """Refuses what is no mapping with names.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, Mapping):
        kind = _kind(value)
        raise TypeError(
            f"{argument} is a mapping of {what} to their values, and not of type {kind}"
        )
    for name in value:
        if not isinstance(name, str):
            raise TypeError(f"{argument} names {what} by text, and not by {_kind(name)}")


def texts_of(argument: str, value: object) -> list[str]:
    """The texts of a list.

    Raises:
        TypeError: it is no list, or has something else.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise TypeError(f"{argument} is a list of texts, and not of type {_kind(value)}")
    for each in value:
        if not isinstance(each, str):
            raise TypeError(f"{argument} is a list of texts, and {_kind(each)} is none")
    return list(value)


def items_of(argument: str, what: str, value: object) -> list[object]:
    """The items of what can be iterated over.

    Raises:
        TypeError: it cannot.
    """
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{argument} is a list of {what}, and not of type {_kind(value)}")
    return list(value)


def clock_of(clock: Clock | None) -> Clock:
    """The clock, the machine's if none is given.

    Raises:
        TypeError: it is none; a class of clocks, for one.
    """
    if clock is None:
        return SystemClock()
    if isinstance(clock, type):
        raise TypeError(f"clock is a clock, and not the class of some: {clock.__name__}()")
    if not all(hasattr(clock, name) for name in _READINGS):
        kind = _kind(clock)
        raise TypeError(f"clock is a clock, such as odradek.ManualClock(), and not of type {kind}")
    return clock


def check_seed(seed: object) -> None:
    """Refuses what cannot be a seed.

    Raises:
        TypeError: it cannot.
    """
    if seed is not None and not isinstance(seed, _SEEDS):
        raise TypeError(f"seed is a number, and not of type {_kind(seed)}")


def check_port(port: object) -> None:
    """Refuses what is neither a port nor the text of one, which the listeners' rules read.

    Raises:
        TypeError: it is neither.
    """
    if port is not None and (isinstance(port, bool) or not isinstance(port, int | str)):
        raise TypeError(f"port is a number, such as 9092, and not of type {_kind(port)}")


def check_security(word: object) -> None:
    """Refuses what is no word, such as the users with their passwords.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(word, str):
        raise TypeError(f'security is a word, such as "scram", and not of type {_kind(word)}')


def check_broker_id(number: object) -> None:
    """Refuses what is neither a number nor the text of one, which the settings' rules read.

    Raises:
        TypeError: it is neither.
    """
    if isinstance(number, bool) or not isinstance(number, int | str):
        raise TypeError(f"broker_id is a number, and not of type {_kind(number)}")


def whole(argument: str, value: Any) -> int:
    """The whole number that is given: a number of NumPy's is one too.

    Raises:
        TypeError: it is none: the text of one, for example.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{argument} is a whole number, and not of type {_kind(value)}")
    return operator.index(value)


def whole_or_none(argument: str, value: Any) -> int | None:
    """The whole number, if one is given.

    Raises:
        TypeError: it is something else.
    """
    return None if value is None else whole(argument, value)


def seconds(timeout: Any) -> float | None:
    """The number of seconds, which may be a decimal number; None is no end.

    Raises:
        TypeError: it is none.
        ValueError: it is the number that is none.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not hasattr(timeout, "__float__"):
        raise TypeError(f"timeout is a number of seconds, and not of type {_kind(timeout)}")
    found = float(timeout)
    if isnan(found):
        raise ValueError("timeout is a number of seconds, and not nan")
    return found


def timestamp_of(value: Any) -> int | None:
    """The milliseconds of a record's time, if they are given.

    Raises:
        TypeError: it is no whole number.
        ValueError: no record can have it.
    """
    found = whole_or_none("timestamp", value)
    if found is not None and not _FIRST_MS <= found <= -_FIRST_MS:
        raise ValueError(f"timestamp is a number of milliseconds with 64 bits, and not {found}")
    return found


def check_path(argument: str, path: object) -> None:
    """Refuses what is no path.

    Raises:
        TypeError: it is none: settings that were meant for `config`, for one.
    """
    if isinstance(path, Mapping):
        raise TypeError(f"{argument} is a path; settings go into config={{...}}")
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{argument} is a path, and not of type {_kind(path)}")


def check_broker_count(brokers: object) -> None:
    """Refuses what is no number of brokers.

    Raises:
        TypeError: it is no number.
        ValueError: it is below 1.
    """
    if not isinstance(brokers, int) or isinstance(brokers, bool):
        kind = _kind(brokers)
        raise TypeError(f"a cluster is made of a number of brokers, such as 3, and not of {kind}")
    if brokers < 1:
        raise ValueError(f"a cluster has at least one broker, not {brokers}")


def pairs_of(argument: str, value: object) -> list[tuple[Any, Any]]:
    """The pairs of a mapping, or of a list of pairs, which begin with a name.

    Raises:
        TypeError: it is neither.
    """
    found = value.items() if isinstance(value, Mapping) else items_of(argument, "pairs", value)
    pairs: list[tuple[Any, Any]] = []
    for each in found:
        if not isinstance(each, tuple | list) or len(each) != 2:
            raise TypeError(
                f"{argument} is a mapping or a list of pairs, and {_kind(each)} is none"
            )
        if not isinstance(each[0], str):
            raise TypeError(f"{argument} are named by text, and not by {_kind(each[0])}")
        pairs.append((each[0], each[1]))
    return pairs


def text_or_none(argument: str, value: Any) -> str | None:
    """The text, if one is given.

    Raises:
        TypeError: it is something else.
    """
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{argument} is a text, and not of type {_kind(value)}")


def _kind(value: object) -> str:
    return type(value).__name__
