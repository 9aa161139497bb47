"""Reports the errors of a read or a write to Spark in one sentence.

Spark shows the user a Python worker's whole traceback, through its code and ours, even for a
mistyped topic. `in_one_sentence` wraps everything that Spark calls: errors about options, topics,
records and brokers become a `SourceError` whose text says everything, and this worker prints no
traceback for it. Our own faults keep their traceback.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from odradek.errors import BrokerError
from odradek.tables.errors import DamagedRecords, DataLoss, MissingData, OutdatedQuery, WrongPath
from pyspark_odradek.workers import is_spark_worker

_TOLD: Final = (
    ValueError,
    BrokerError,
    DamagedRecords,
    DataLoss,
    MissingData,
    OutdatedQuery,
    WrongPath,
)

# Lines with the place in Spark's code that raised it, or in the driver that called for it.
_NO_REASON: Final = ("at ", "An error occurred while calling")
_LINES: Final = 3
# A pipeline's own error, too, where a batch was refused.
_OURS: Final = re.compile(r"\bpyspark_odradek\.[a-z_.]+\.(?:SourceError|PipelineError): (.+)")
# Of another error in a batch Spark tells the traceback first, and facts about the query behind it.
_TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\):\n(?:  .*\n)+")
_FACTS: Final = re.compile(r"\n\s*(?:at |SQLSTATE: |=== )")
_KIND: Final = re.compile(r"\A(?:(?:pyspark_)?odradek\.[\w.]+: |\w+: \[Errno \d+\] )")

P = ParamSpec("P")
T = TypeVar("T")


class SourceError(Exception):
    """A read or a write failed; the message is one sentence or two."""


@contextmanager
def telling_in_one_sentence() -> Iterator[None]:
    """Turns errors for users into a `SourceError`.

    Raises:
        SourceError: the block failed for such a reason.
    """
    try:
        yield
    except _TOLD as error:
        _hide_traceback()
        raise SourceError(_sentence(error)) from None


def in_one_sentence(call: Callable[P, T]) -> Callable[P, T]:
    """The same for a method that Spark calls."""

    @wraps(call)
    def told(*args: P.args, **named: P.kwargs) -> T:
        with telling_in_one_sentence():
            return call(*args, **named)

    return told


def reason_in(text: str) -> str:
    """Our sentence in Spark's error, or the first lines of Spark's own."""
    match = _OURS.search(text)
    if match:
        return match[1].strip()
    *calls, said = _TRACEBACK.split(text)
    if calls:
        said = _KIND.sub("", _FACTS.split(said, maxsplit=1)[0])
    lines = (line.strip(": \t") for line in said.splitlines())
    told = [line for line in lines if line and not line.startswith(_NO_REASON)]
    return " ".join(told[:_LINES])


def _sentence(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return " ".join(text.split())


def _hide_traceback() -> None:
    """Turns on Spark's own switch for this worker process; elsewhere it does nothing."""
    if is_spark_worker():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
