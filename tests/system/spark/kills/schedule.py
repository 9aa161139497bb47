"""A program: the documented schedule of an archive with seconds for minutes, until it is killed.

python schedule.py SERVERS ARCHIVE MASTER SEED on|once

It archives, compacts and audits all at once, each again and again; `once` has each done one time,
one after the other. Compactions and audits die by themselves as well: before a change to a file
that is chosen by chance, with nothing done that they would do at their end. A line is printed of
each that ends, and one that begins with FAULT where something is wrong.
"""

import random
import sys
import threading
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_odradek import session
from pyspark_odradek.pipelines import PipelineError, PipelineSettings, archive, audit, compact
from pyspark_odradek.pipelines.ends.files import FileSystem

CONF = {"spark.sql.shuffle.partitions": "2", "spark.executor.memory": "512m"}
MOST_CHANGES = 12


class Killed(BaseException):
    """The process would have ended here."""


class Mortality(threading.local):
    """How many changes to files this thread has left; None is any number."""

    left: int | None = None


# What fails while Spark ends is no fault.
_ends = threading.Event()
_mortality = Mortality()


def _mortal(change: Callable[..., Any]) -> Callable[..., Any]:
    def changing(*arguments: Any) -> Any:
        if _mortality.left is not None:
            _mortality.left -= 1
            if _mortality.left < 0:
                raise Killed
        return change(*arguments)

    return changing


def tell(text: object) -> None:
    """Prints a line as a whole, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(spark: SparkSession, pipeline: ModuleType, settings: PipelineSettings) -> None:
    """Runs one of them to its end, and tells of it."""
    name = pipeline.__name__.rpartition(".")[2]
    try:
        outcome = pipeline.build(spark, settings).run()
        for finding in outcome.findings:
            tell(f"FAULT {name}: {finding}")
        tell(f"{name} {outcome.facts}")
    except Killed:
        tell(f"{name} died")
    except PipelineError as error:
        # Before its first batch it is none.
        is_early = "is no archive" in str(error)
        tell(f"{'' if is_early else 'FAULT '}{name}: {error}")
    except (PySparkException, Py4JError, OSError, KeyError, ValueError) as error:
        tell(f"{'' if _ends.is_set() else 'FAULT '}{name}: {error!r}")


def again(
    spark: SparkSession, pipeline: ModuleType, settings: PipelineSettings, rng: random.Random
) -> None:
    """Runs it for ever, killed every other time."""
    while True:
        time.sleep(rng.uniform(1, 6))
        _mortality.left = rng.choice([None, rng.randrange(MOST_CHANGES)])
        run(spark, pipeline, settings)


def main(servers: str, place: str, master: str, seed: str, how: str) -> None:
    """Runs the schedule."""
    settings = PipelineSettings(servers, "orders", to=place, source=place)
    with session("schedule", master=master, memory="512m", conf=CONF) as spark:
        if how == "once":
            for pipeline in (archive, compact, audit):
                run(spark, pipeline, settings)
            return
        for name in ("create", "replace", "remove"):
            setattr(FileSystem, name, _mortal(getattr(FileSystem, name)))
        for number, pipeline in enumerate((compact, audit)):
            rng = random.Random(f"{seed}-{number}")
            arguments = (spark, pipeline, settings, rng)
            threading.Thread(target=again, args=arguments, daemon=True).start()
        tell("ready")
        every = PipelineSettings(servers, "orders", to=place, every="2 seconds")
        try:
            archive.build(spark, every).run(tell)
        finally:
            _ends.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
