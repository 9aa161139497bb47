"""The metadata store of the brokers of one process: nothing to install, nothing to run.

Import `database` to keep the metadata longer than the process; without it the store is in memory,
and a broker in a test does not pay for loading sqlite3.
"""

from odradek.metadata.sqlite.shared import SharedMetadata
from odradek.metadata.sqlite.store import EmbeddedMetadataStore

__all__ = ["EmbeddedMetadataStore", "SharedMetadata"]
