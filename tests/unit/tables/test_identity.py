"""If these fail, rows of another cluster or topic are taken for those that were asked for."""

from pathlib import Path
from uuid import UUID

import pytest

from odradek.model import TopicPartition
from odradek.storage.checkpoints import encode_meta_properties, encode_partition_metadata
from odradek.tables.errors import MissingData, WrongPath
from odradek.tables.plan.identity import (
    Identity,
    check_cluster,
    check_same_log_dirs,
    describe_log_dirs,
)
from odradek.tables.plan.options import ClientOptions, ReadOptions, TopicSelection
from odradek.tables.plan.ranges import OffsetRange
from odradek.tables.scan.reading import open_records

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def path(log_dir, batch_of) -> str:
    """A log directory of broker 1 of cluster `ours`, with five records."""
    log_dir.segment([batch_of(0, 4)], 0)
    write_meta(log_dir.root)
    (log_dir.partition / "partition.metadata").write_bytes(encode_partition_metadata(UUID(int=7)))
    return str(log_dir.root)


def write_meta(root: Path, cluster: str = "ours", node: int = 1) -> None:
    (root / "meta.properties").write_bytes(encode_meta_properties(cluster, node, UUID(int=node)))


def options(path: str) -> ReadOptions:
    return ReadOptions(TopicSelection(names=("orders",)), ClientOptions(), (path,))


def test_a_directory_of_the_cluster_is_read(path) -> None:
    found = describe_log_dirs((path,))
    check_cluster(found, "ours")
    records = open_records(options(path), Identity("ours", {"orders": UUID(int=7)}, found))
    assert len(list(records.read(OffsetRange(ORDERS, 0, 5)))) == 1


def test_a_directory_of_another_cluster_is_refused(path) -> None:
    with pytest.raises(WrongPath, match="belongs to cluster ours, "):
        check_cluster(describe_log_dirs((path,)), "theirs")


@pytest.mark.parametrize(("cluster", "node"), [("theirs", 1), ("ours", 2)])
def test_another_directory_of_the_same_name_is_refused(path, cluster, node) -> None:
    """A worker on another machine would find other records, or none."""
    planned = describe_log_dirs((path,))
    write_meta(Path(path), cluster, node)
    with pytest.raises(WrongPath, match="is another directory"):
        check_same_log_dirs(planned)


def test_a_directory_that_is_not_there_is_refused(path) -> None:
    planned = describe_log_dirs((path,))
    with pytest.raises(WrongPath, match="there is no directory /nowhere"):
        check_same_log_dirs({"/nowhere": planned[path]})
    with pytest.raises(WrongPath, match="there is no directory /nowhere"):
        describe_log_dirs(("/nowhere",))


def test_a_topic_that_was_made_anew_has_none_of_the_old_records(path) -> None:
    identity = Identity("ours", {"orders": UUID(int=8)}, describe_log_dirs((path,)))
    records = open_records(options(path), identity)
    with pytest.raises(MissingData, match="orders-0 was deleted and recreated"):
        records.read(OffsetRange(ORDERS, 0, 5))
