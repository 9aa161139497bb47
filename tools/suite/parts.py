"""The tests of each real thing that `./test` runs, and the parts that hold everything else.

A slow test belongs to the part with the longest path that it lies under.
"""

from collections.abc import Iterable
from typing import Final

# One slow test of each real thing, by what it shows. Confluent's client, aiokafka, kafka-python,
# kcat and kafkajs are among the quick tests.
CORE: Final = {
    "install from the wheel": (
        "tests/system/test_install.py::test_the_wheel_is_installed_where_nothing_is",
    ),
    "a durable process is killed and started again": (
        "tests/system/test_process.py::test_one_line_then_a_controlled_shutdown[15]",
        "tests/system/kills/test_group_kill.py::test_no_acknowledged_commit_goes_back",
    ),
    "the Java tools": (
        "tests/wire/libraries/test_java_tools.py::test_a_topics_life",
        "tests/wire/libraries/test_java_tools.py::test_console_producer_and_consumer[zstd]",
    ),
    "every API beside Apache Kafka": (
        "tests/wire/differential/test_sweep.py::test_every_api_in_every_version[of-1]",
    ),
    "three brokers on ZooKeeper, the leader killed": (
        "tests/system/cluster/test_faults.py::test_a_leader_is_killed",
    ),
    "a transaction chain with a kill": (
        "tests/system/kills/test_transaction_kill.py::test_every_input_is_in_the_output_once",
    ),
    "Spark's source, sink and a pipeline": (
        "tests/wire/spark/test_source.py::test_the_same_topic_is_the_same_table[zstd]",
        "tests/wire/spark/test_source.py::test_a_batch_that_is_repeated_is_in_the_topic_once",
        "tests/system/spark/test_pipelines.py::test_volume_shows_its_table_and_needs_no_directory",
    ),
    "what README says": (
        "tests/architecture/words/test_documents.py::test_the_first_minute_in_a_shell_and_in_spark",
    ),
}

# Tests that cannot be made steady at once, and why: they run and are reported, and decide nothing.
UNSTEADY: Final[dict[str, str]] = {}

# A part takes at most so long on two idle cores.
PART_MINUTES: Final = 20
# What `--all` adds to the quick tests.
PARTS: Final = {
    "units": ("tests",),
    "clients": ("tests/wire/client", "tests/wire/libraries", "tests/wire/security"),
    "java": (
        "tests/wire/groups",
        "tests/wire/libraries/test_java_tools.py",
        "tests/wire/libraries/old/test_old_clients.py",
        "tests/wire/client/tools",
    ),
    "differential": ("tests/wire/differential",),
    "interchange": ("tests/wire/interchange",),
    "cluster": ("tests/system/cluster", "tests/system/test_local_cluster.py"),
    "kills": ("tests/system/kills",),
    "spark": ("tests/wire/spark",),
    "pipelines": ("tests/wire/spark/pipelines",),
    "spark-processes": ("tests/system/spark",),
    "lake": (
        "tests/system/spark/test_lake.py",
        "tests/system/spark/test_object_store.py",
        "tests/system/spark/test_spark_clusters.py",
        "tests/system/spark/test_spark_connect.py",
    ),
    "install": ("tests/system", "tests/architecture"),
}

# What the parts of `--all` hold that are not slow tests.
OTHERS: Final = {
    "uncompiled": "the quick tests, with the sources of the compiled modules",
    "laptops": "the quick unit tests, without what Linux alone has",
    "pythons": "a broker's tests, on each Python that can be had",
    "newest": "style, types and the quick tests, with the newest of everything",
}


def core_tests() -> list[str]:
    """The node ids of all tests of the core."""
    return [test for tests in CORE.values() for test in tests]


def part_of(path: str) -> str:
    """The part that a test file belongs to; `path` is relative to the root of the project."""
    homes = {under: part for part, folders in PARTS.items() for under in folders}
    return homes[longest_above(path, homes) or "tests"]


def longest_above(path: str, folders: Iterable[str]) -> str | None:
    """The longest of the folders and files that a path lies under; None if it is under none."""
    above = [each for each in folders if path == each or path.startswith(f"{each}/")]
    return max(above, key=len, default=None)


def files_of(part: str, paths: Iterable[str]) -> list[str]:
    """The test files that belong to a part."""
    return [path for path in paths if part_of(path) == part]
