"""Builds the hot modules with mypyc, from the same sources that also run uncompiled.

Which modules are compiled follows from where they lie: `COMPILED`, less `INTERPRETED`. Without
mypy or a C compiler, or where they fail, the package installs all the same, slower, and says so
once. `python setup.py --print-native` lists the sources of the compiled modules.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path("src/odradek")

# The walk of a request, floor by floor: what runs once a frame, a batch, a record or a timer.
COMPILED = (
    "clock.py",
    "coordinator/**/*.py",
    "handlers/before_append.py",
    "handlers/dispatcher.py",
    "handlers/fetch*.py",
    "handlers/heartbeat.py",
    "handlers/*_group.py",
    "handlers/list_offsets.py",
    "handlers/offset_commit.py",
    "handlers/offset_fetch.py",
    "handlers/parked_fetches.py",
    "handlers/produce*.py",
    "handlers/request*.py",
    "handlers/topic_names.py",
    "handlers/unpacking.py",
    "network/*.py",
    "protocol/*.py",
    "purgatory/*.py",
    "records/*.py",
    "replication/*.py",
    "storage/files.py",
    "storage/log_directory.py",
    "storage/cleaner/*.py",
    "storage/index/*.py",
    "storage/log/*.py",
    "storage/producers/*.py",
    "timer/*.py",
)
# What lies among them and stays interpreted, and why.
INTERPRETED = (
    # An exception that compiled code raises has to be an ordinary class.
    "**/errors.py",
    # The rims: they derive from classes of asyncio, or touch threads and sockets.
    "network/addresses.py",
    "network/connection_quotas.py",
    "network/listener.py",
    "network/log_limit.py",
    "network/socket_server.py",
    "purgatory/reaper.py",
    "timer/asyncio_driver.py",
    "timer/periodic_task.py",
    # Cold, and full of what is only known while it runs: kio's messages, tables for tools.
    "protocol/message*.py",
    "protocol/schema.py",
    "coordinator/records/record_schemas.py",
    "coordinator/transactions/*.py",
    "coordinator/records/transaction_*.py",
    # The work is done by libraries, or once in a while.
    "records/compression.py",
    "replication/role_changes.py",
    "storage/cleaner/cleanable.py",
    "storage/cleaner/cleaning.py",
    "storage/cleaner/log_cleaner.py",
    "storage/log/roll_rules.py",
    "storage/log/swap.py",
    "storage/producers/end_marker.py",
    "storage/producers/producer_snapshot.py",
    "storage/producers/replay.py",
)
# Lets the C compiler inline across the functions of a module.
COMPILER_FLAGS = "-fno-semantic-interposition"


def native_modules() -> list[str]:
    """The sources that are compiled. What a package says of itself is not."""
    found = {path for pattern in COMPILED for path in ROOT.glob(pattern)}
    found -= {path for pattern in INTERPRETED for path in ROOT.glob(pattern)}
    return sorted(str(path) for path in found if path.name != "__init__.py")


class OptionalBuildExt(build_ext):
    """Goes on without compiled modules when the compiler fails."""

    def run(self) -> None:
        """Compiles, or says once that the package will run uncompiled."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever a compiler can do wrong
            uncompiled(f"the compiler failed: {error}")
            self.extensions = []


def say(text: str) -> None:
    """Tells who watches the build (`pip install -v`)."""
    print(f"odradek: {text}", file=sys.stderr, flush=True)


def uncompiled(reason: str) -> None:
    """Says, once, that the installation is the slow one."""
    say(f"installing without compiled modules, slower: {reason}")


def native_extensions() -> list[object]:
    """The compiled modules, or none where they are not wanted or cannot be made."""
    if os.environ.get("ODRADEK_PURE", "0") not in ("", "0"):
        return []
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        uncompiled("there is no C compiler here")
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        uncompiled("mypyc is missing")
        return []
    modules = native_modules()
    os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} {COMPILER_FLAGS}".strip()
    say(f"translating {len(modules)} modules to C (a minute), and those to machine code (two)")
    try:
        return list(mypycify(["--strict", *modules], opt_level="3", debug_level="0"))
    except SystemExit as error:  # how mypycify says that the sources do not pass
        uncompiled(f"mypyc refused the sources: {error}")
        return []


if __name__ == "__main__":
    if sys.argv[1:] == ["--print-native"]:
        print("\n".join(native_modules()))
    else:
        setup(ext_modules=native_extensions(), cmdclass={"build_ext": OptionalBuildExt})
