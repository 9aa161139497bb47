"""Which epoch begins where: what a follower asks to find where two logs part ways."""

import pytest

from odradek.storage import LeaderEpochCache, OsFileSystem
from odradek.storage.checkpoints import parse_epochs


@pytest.fixture
def epochs(tmp_path) -> LeaderEpochCache:
    files = OsFileSystem(8, durable=False)
    return LeaderEpochCache(files, str(tmp_path / "leader-epoch-checkpoint"))


def filled(epochs: LeaderEpochCache) -> LeaderEpochCache:
    for epoch, start_offset in ((2, 0), (3, 40), (6, 70)):
        epochs.assign(epoch, start_offset)
    return epochs


def test_end_offsets(epochs):
    """A follower would keep records that the leader does not have."""
    assert epochs.end_offset_for(0, 100) == (-1, -1)
    filled(epochs)
    assert epochs.end_offset_for(6, 100) == (6, 100)
    assert epochs.end_offset_for(3, 100) == (3, 70)
    assert epochs.end_offset_for(5, 100) == (3, 70)
    assert epochs.end_offset_for(2, 100) == (2, 40)
    assert epochs.end_offset_for(1, 100) == (1, 0)
    assert epochs.end_offset_for(7, 100) == (-1, -1)
    assert epochs.end_offset_for(-1, 100) == (-1, -1)


def test_an_older_epoch_is_ignored_and_an_empty_one_replaced(epochs):
    """Epochs would not rise with offsets."""
    filled(epochs)
    epochs.assign(6, 90)
    epochs.assign(4, 95)
    assert epochs.entries == [(2, 0), (3, 40), (6, 70)]
    epochs.assign(7, 70)
    assert epochs.entries == [(2, 0), (3, 40), (7, 70)]
    assert epochs.latest_epoch == 7


def test_the_file_follows(epochs, tmp_path):
    """A restart would forget the epochs."""
    filled(epochs)
    path = tmp_path / "leader-epoch-checkpoint"
    assert path.read_bytes() == b"0\n3\n2 0\n3 40\n6 70\n"
    epochs.truncate_from_end(70)
    assert parse_epochs(path.read_bytes()) == [(2, 0), (3, 40)]


def test_truncating_the_start_keeps_the_epoch_that_holds_it(epochs):
    """The first records that are left would belong to no epoch."""
    filled(epochs)
    epochs.truncate_from_start(40)
    assert epochs.entries == [(3, 40), (6, 70)]
    epochs.truncate_from_start(50)
    assert epochs.entries == [(3, 50), (6, 70)]
    epochs.truncate_from_start(99)
    assert epochs.entries == [(6, 99)]
    assert epochs.epoch_for_offset(99) == 6
    assert epochs.epoch_for_offset(98) == -1
