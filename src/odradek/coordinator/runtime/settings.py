"""`RuntimeSettings`: how a coordinator deals with its log."""

from collections.abc import Callable
from typing import Final, NamedTuple

LOAD_SLICE_BYTES: Final = 256 * 1024


class RuntimeSettings(NamedTuple):
    """`max_batch_bytes` bounds a batch, which is compressed with `compression` (Kafka's number);
    `load_slice_bytes` are replayed before the loop turns; a request that writes is answered
    after `write_timeout_ms` at the latest.
    """

    max_batch_bytes: Callable[[], int]
    compression: int = 0
    load_slice_bytes: int = LOAD_SLICE_BYTES
    write_timeout_ms: int = 5_000
