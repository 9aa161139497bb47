"""Every bit of a log counts: if this fails, an audit passes over records that are damaged.

What an audit compares is what a read gives. A read of a damaged segment has to fail, or to give
something else than what was written.
"""

from pathlib import Path

import pytest

import odradek
from odradek.errors import BrokerError
from odradek.tables.errors import DamagedRecords, DataLoss, MissingData
from odradek.tables.topic import Topic

TIME_MS = 1_700_000_000_000
# Of a batch: who led when it was written. It is about the log's copies, not about the records.
EPOCH = range(12, 16)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A topic of three batches."""
    path = tmp_path_factory.mktemp("data")
    with odradek.Broker(data_dir=str(path)) as broker:
        broker.create_topic("orders", config={"retention.ms": -1})
        for number in range(3):
            time_ms, headers = TIME_MS + number, {"n": b"%d" % number}
            broker.produce("orders", f"v{number}", key="k", timestamp=time_ms, headers=headers)
    return path


def test_any_flipped_bit_is_seen(data_dir: Path) -> None:
    topic = Topic("orders", path=str(data_dir))
    whole = topic.to_arrow()
    assert whole.num_rows == 3
    [segment] = (data_dir / "orders-0").glob("*.log")
    content = segment.read_bytes()
    size = len(content) // 3
    unseen = []
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        segment.write_bytes(changed)
        try:
            if topic.to_arrow() == whole:
                unseen.append(position)
        except (DamagedRecords, DataLoss, MissingData, BrokerError):
            continue
    segment.write_bytes(content)
    assert topic.to_arrow() == whole
    assert [position for position in unseen if position % size not in EPOCH] == []
