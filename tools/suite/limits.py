"""How long a slow test may take, its fixtures included, where two minutes are too few.

A test under several of the paths has the limit of the longest one. On a slow machine all limits
grow, as the deadlines in tests do (`slowness`), and with the rounds that were asked for.
"""

import os
from typing import Final

from tools.suite import slowness
from tools.suite.parts import longest_above

_SPARK: Final = "Spark starts, and a query of it; a Python worker may be late beside other tests"
_JVMS: Final = "JVMs start: Apache Kafka, or three, or a tool for every line"
_MUTANTS: Final = "runs a suite again for every mutation"

# Behind it a process that sees no signal is ended: `faulthandler_timeout` in pyproject.toml.
LAST_RESORT_S: Final = 1500
# Seconds, and the reason.
LIMITS_S: Final = {
    "tests/architecture/words/test_documents.py": (300, "README's pages start brokers and Spark"),
    "tests/simulation": (600, _MUTANTS),
    "tests/system/cluster": (600, "three brokers and a ZooKeeper are killed, paused and cut off"),
    "tests/system/kills": (600, "rounds of kills; each start recovers what the last one left"),
    "tests/system/spark": (900, _SPARK),
    "tests/system/test_deployment.py": (600, "installs the package"),
    "tests/system/test_example_suites.py": (600, "runs suites of others, each with its own start"),
    "tests/system/test_folders.py": (1200, "sets a clone up, and compiles it"),
    "tests/system/test_install.py": (1200, "compiles the package and fetches its dependencies"),
    "tests/system/test_laptops.py": (600, "runs suites again with a part of Linux taken away"),
    "tests/system/test_local_cluster.py": (600, _JVMS),
    "tests/unit": (600, _MUTANTS),
    "tests/wire": (300, _JVMS),
    "tests/wire/differential": (600, _JVMS),
    "tests/wire/interchange": (600, _JVMS),
    "tests/wire/libraries/old/test_old_clients.py": (600, _JVMS),
    "tests/wire/spark": (600, _SPARK),
}


def rounds_of_this_run() -> int:
    """The number of `./test --rounds`: how many times as many kills, faults and seeds."""
    return int(os.environ.get("ODRADEK_ROUNDS", "1"))


def grown(seconds: float) -> float:
    """A limit, as long as it has to be on this machine and for so many rounds."""
    return seconds * slowness.of_this_run() * rounds_of_this_run()


def limit_s(path: str) -> int | None:
    """The limit of the slow tests of a file, relative to the root; None for the usual one."""
    above = longest_above(path, LIMITS_S)
    return None if above is None else LIMITS_S[above][0]
