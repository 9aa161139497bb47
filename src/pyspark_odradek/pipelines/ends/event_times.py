"""The times by which Spark decides what is late.

Its watermark begins at 1970: it takes every earlier time for late, even in the first batch. So all
times are moved behind it. Times before the year -71000 count as one, and so do those after 75000.
"""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

# So far from 1970, in microseconds, times are told apart.
_FARTHEST_US: Final = 1 << 61


def event_time(time: str) -> Column:
    """Returns the times of a column for a watermark, as far apart as they are, and so far from the
    end of time that Spark can add to them.
    """
    found = f.greatest(f.unix_micros(time), f.lit(1 - _FARTHEST_US))
    return f.timestamp_micros(f.least(found, f.lit(_FARTHEST_US)) + _FARTHEST_US)
