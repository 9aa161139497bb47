"""Turns Arrow tables into data frames of Polars; the extra `polars` brings what both need.

Raises:
    ImportError: on import, Polars or pyarrow is not installed.
"""

from typing import TYPE_CHECKING, Any

try:
    import polars
    import pyarrow  # noqa: F401 - else who reads the topic would name another extra
except ImportError as error:
    raise ImportError(f"{error.name} is not installed: pip install 'odradek[polars]'") from None

if TYPE_CHECKING:
    from odradek.tables.arrow import Table


def polars_frame(table: "Table") -> Any:
    """The table as a data frame of Polars."""
    return polars.from_arrow(table)
