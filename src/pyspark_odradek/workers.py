"""The Python processes that Spark starts, for tasks and for every step of planning.

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

    Called at the end of the first piece of work: then these are the imports, some 80 000 objects,
    and scanning them takes longer than a small task.
    """
    if is_spark_worker():
        gc.freeze()
