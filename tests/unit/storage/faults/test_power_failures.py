"""The machine stops after every operation of a log's life, and forgets what was not synced.

What was on the disk by the log's own account is there at the next start, in every state that
the disk may be in; nothing else than what was sent is ever served.
"""

import hashlib
import itertools
import os
import shutil
from pathlib import Path

import pytest
from tests.unit.storage.conftest import World
from tests.unit.storage.faults.lives import PROPERTIES, Life, findings

from odradek.testing.faulty_files import Crashed
from odradek.testing.volatile_files import VolatileFileSystem


def live_until(life: Life) -> None:
    """Lives to the end, or until the power fails; notes what is durable on the way."""
    try:
        for step in life.steps():
            step()
            life.note_durable()
    except Crashed:
        pass
    life.world.crash(life.world.managers[-1])


def fingerprint(directory: Path) -> bytes:
    """Names and contents of all files."""
    digest = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        digest.update(str(path.relative_to(directory)).encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.digest()


def check_state(life: Life, directory: Path) -> None:
    """Starts on what is left, compares it with what was durable, and goes on."""
    world = World([str(directory)])
    manager = world.start(properties=PROPERTIES)
    try:
        life.check_durable(manager)
        again = Life(world, life.file_system)
        again.manager = manager
        again.ids = life.ids
        for log in [again.log_of(manager, each) for each in life.promises]:
            (info,) = log.appender.append_as_leader([life.batch([(b"new", b"new")])], 9)
            assert info.first_offset == log.log_end_offset - 1
    finally:
        manager.shutdown()
    world.timer.advance_clock(1)
    assert findings(str(directory), life.ids, may_have_gaps=True) == []


@pytest.mark.slow
def test_the_power_fails_after_every_operation(tmp_path):
    """Durable records would be lost: a sync is missing, or comes in the wrong order."""
    seen: set[bytes] = set()
    for number in itertools.count(1):
        root = tmp_path / f"life{number}"
        root.mkdir()
        files = VolatileFileSystem(str(root))
        files.crash_at = number
        life = Life(World([str(root / "data")]), files)
        live_until(life)
        promised = repr([(p.durable, p.start) for p in life.promises.values()]).encode()
        # No change of names that is not synced, all of them, or all but the last.
        pending = files.pending_changes
        for kept, zeros in itertools.product({0, max(pending - 1, 0), pending}, (False, True)):
            left = tmp_path / "left"
            files.survive(str(left), kept, zeros=zeros)
            state = fingerprint(left) + promised
            if state not in seen and os.path.isdir(left / "data"):
                seen.add(state)
                try:
                    check_state(life, left / "data")
                except Exception as error:
                    error.add_note(f"operation {number}, {kept=}, {zeros=}, {files.log[-4:]}")
                    raise
            shutil.rmtree(left)
        shutil.rmtree(root)
        if not files.has_crashed:
            break
    assert number > 200
    assert len(seen) > number
