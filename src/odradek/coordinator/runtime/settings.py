"""`RuntimeSettings`: the settings of a coordinator's log."""

from typing import Final, NamedTuple

LOAD_SLICE_BYTES: Final = 256 * 1024


class RuntimeSettings(NamedTuple):
    """Batches are compressed with `compression` (Kafka's number); `load_slice_bytes` are replayed
    before the loop turns; a request waits for a write, or for its turn, `write_timeout_ms` at most.
    """

    compression: int = 0
    load_slice_bytes: int = LOAD_SLICE_BYTES
    write_timeout_ms: int = 5_000
