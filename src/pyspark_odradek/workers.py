"""The Python processes that Spark starts, for tasks and for every kind of step of planning.

They are kept for the next piece of work, and collect garbage after each.
"""

import gc
import sys
from functools import cache


def is_spark_worker() -> bool:
    """Whether this is a process that Spark has started."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")


@cache
def freeze_imports() -> None:
    """Excludes all present objects from garbage collection, once per process.

    For the end of a first piece of work: then it is what was imported, some 80 000 objects, which
    it takes longer to go through than a small task takes.
    """
    if is_spark_worker():
        gc.freeze()
