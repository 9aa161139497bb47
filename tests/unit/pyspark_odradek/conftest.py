"""The hand-made partition of the tests of tables."""

from tests.unit.tables.conftest import batch_of, log_dir

__all__ = ["batch_of", "log_dir"]
