"""Builds the hot modules with mypyc, from the same sources that also run uncompiled.

Which modules are compiled follows from where they lie: `COMPILED`, less `INTERPRETED`. Without
mypy or a C compiler, or where they fail, the package installs all the same, slower, and says so
once. `python setup.py --print-native` lists the sources of the compiled modules.

What is made on the way lies in a temporary directory: an installation leaves nothing behind in
the sources.
"""

import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036 - pip runs this before it reads pyproject.toml
    sys.exit(f"Odradek needs Python 3.11 or later; this is {sys.version.split()[0]}")

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path("src/odradek")

# The walk of a request, floor by floor, and of a record through a client: what runs once a frame, a
# batch, a record or a timer.
COMPILED = (
    "client/core/producing/accumulator.py",
    "client/core/consuming/consumer_record.py",
    "client/core/producing/deliveries.py",
    "client/core/consuming/fetched.py",
    "client/core/producing/intake.py",
    "client/core/producing/producer_metrics.py",
    "client/core/producing/partitioner.py",
    "client/core/consuming/record_reading.py",
    "client/core/metrics.py",
    "client/core/network/traffic.py",
    "clock.py",
    "coordinator/**/*.py",
    "handlers/authorization/access.py",
    "handlers/authorization/hot.py",
    "handlers/dispatcher.py",
    "handlers/records/*.py",
    "handlers/request*.py",
    "handlers/topic_names.py",
    "handlers/groups/*_group.py",
    "handlers/groups/heartbeat.py",
    "handlers/groups/offset_commit.py",
    "handlers/groups/offset_fetch.py",
    "handlers/transactions/*_txn.py",
    "handlers/transactions/transaction_*.py",
    "metrics/*.py",
    "network/**/*.py",
    "protocol/*.py",
    "protocol/direct/*.py",
    "purgatory/*.py",
    "records/*.py",
    "replication/*.py",
    "replication/delayed/*.py",
    "replication/share/*.py",
    "security/authorizer/authorizer.py",
    "server/coordination/transaction_routing.py",
    "storage/files.py",
    "storage/log_directory.py",
    "storage/cleaner/*.py",
    "storage/index/*.py",
    "storage/log/*.py",
    "storage/producers/*.py",
    "tables/write/record_accumulator.py",
    "timer/*.py",
    "windowed_rate.py",
)
# What lies among them and stays interpreted, and why.
INTERPRETED = (
    # An exception that compiled code raises has to be an ordinary class.
    "**/errors.py",
    # The rims: they derive from classes of asyncio, or touch threads and sockets.
    "network/addresses.py",
    "network/connection_pace.py",
    "network/connection_quotas.py",
    "network/listener.py",
    "network/secured.py",
    "network/socket_server.py",
    "network/tls/protocol.py",
    "network/tls/terms.py",
    "purgatory/reaper.py",
    "timer/asyncio_driver.py",
    "timer/periodic_task.py",
    "timer/retry_task.py",
    # Cold, and full of what is only known while it runs: kio's messages, tables for tools.
    "protocol/messages.py",
    "protocol/schema.py",
    "coordinator/records/record_schemas.py",
    # The work is done by libraries, or once in a while.
    "handlers/records/scheduled_records.py",
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
# The library is one's own: calls inside of it need no detour, and can be inlined.
COMPILER_FLAGS = "-fno-semantic-interposition -fvisibility=hidden"
# Into so many files the C of all modules goes. A single one keeps one core busy for minutes; one a
# module reads the same headers again and again, and nothing is inlined between neighbours.
PIECES = 6
# The commands that need the extensions. Others only ask for the name and the version.
BUILDING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}


def native_modules() -> list[str]:
    """The sources that are compiled. What a package says of itself is not."""
    found = {path for pattern in COMPILED for path in ROOT.glob(pattern)}
    found -= {path for pattern in INTERPRETED for path in ROOT.glob(pattern)}
    return sorted(str(path) for path in found if path.name != "__init__.py")


class NativeBuild(build_ext):
    """Compiles on every core, telling how far it is; goes on without when the compiler fails."""

    def finalize_options(self) -> None:
        """As many compilers at once as there are cores, or as `MAX_JOBS` says."""
        super().finalize_options()
        self.parallel = self.parallel or int(os.environ.get("MAX_JOBS") or cores())

    def run(self) -> None:
        """Compiles, or says once that the package will run uncompiled."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever a compiler can do wrong
            uncompiled(f"the compiler failed: {error}")
            self.extensions = []

    def get_source_files(self) -> list[str]:
        """None to pack: the C is made anew from the modules wherever they are built."""
        return []

    def build_extensions(self) -> None:
        """The pieces of the library side by side, then the rest: small files, one a module."""
        for extension in self.extensions:
            if len(extension.sources) > 1:
                extension.extra_objects = self.compile_pieces(extension)
                extension.sources = []
        super().build_extensions()

    def compile_pieces(self, extension: Extension) -> list[str]:
        """The object files of an extension's sources."""
        say(f"compiling {len(extension.sources)} pieces of C, {self.parallel} at once")
        started = time.monotonic()
        with ThreadPoolExecutor(self.parallel) as pool:
            pieces = [
                pool.submit(
                    self.compiler.compile,
                    [source],
                    output_dir=self.build_temp,
                    include_dirs=extension.include_dirs,
                    extra_postargs=extension.extra_compile_args,
                )
                for source in extension.sources
            ]
            for count, piece in enumerate(as_completed(pieces), 1):
                piece.result()
                say(f"compiled {count}/{len(pieces)} ({time.monotonic() - started:.0f} s)")
        return [path for piece in pieces for path in piece.result()]


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def say(text: str) -> None:
    """Tells who watches the build (`pip install -v`)."""
    print(f"odradek: {text}", file=sys.stderr, flush=True)


def uncompiled(reason: str) -> None:
    """Says, once, that the installation is the slow one."""
    say(f"installing without compiled modules, slower: {reason}")


def native_extensions(directory: Path) -> list[Extension]:
    """The compiled modules, or none where they are not wanted or cannot be made.

    The C goes to the directory.
    """
    if os.environ.get("ODRADEK_PURE", "0") not in ("", "0") or BUILDING.isdisjoint(sys.argv):
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
    say(f"translating {len(modules)} modules to C")
    try:
        extensions = mypycify(
            ["--strict", f"--cache-dir={os.devnull}", *modules],
            opt_level=os.environ.get("MYPYC_OPT_LEVEL", "3"),
            debug_level="0",
            multi_file=True,
            group_name="odradek",
            target_dir=str(directory),
        )
    except SystemExit as error:  # how mypycify says that the sources do not pass
        uncompiled(f"mypyc refused the sources: {error}")
        return []
    for extension in extensions:
        if len(extension.sources) > 1:
            extension.sources = in_pieces(extension.sources, directory)
    return list(extensions)


def in_pieces(sources: list[str], directory: Path) -> list[str]:
    """The sources as `PIECES` files of about the same size, neighbours together."""
    ordered = sorted(sources)
    sizes = [os.path.getsize(source) for source in ordered]
    pieces: list[list[str]] = [[] for _ in range(PIECES)]
    before = 0
    for source, size in zip(ordered, sizes, strict=True):
        middle = before + size // 2
        pieces[middle * PIECES // sum(sizes)].append(source)
        before += size
    paths = []
    for number, piece in enumerate(pieces):
        path = directory / f"piece_{number}.c"
        path.write_text("".join(f'#include "{Path(source).name}"\n' for source in piece))
        paths.append(str(path))
    return paths


def build(directory: Path) -> None:
    """Runs what was asked for, with all that is made on the way in the directory."""
    options = {"build": {"build_base": str(directory / "build")}}
    if "sdist" not in sys.argv:  # which packs what it says of itself, from beside the sources
        options["egg_info"] = {"egg_base": str(directory)}
    setup(
        ext_modules=native_extensions(directory),
        cmdclass={"build_ext": NativeBuild},
        options=options,
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--print-native"]:
        print("\n".join(native_modules()))
    else:
        with tempfile.TemporaryDirectory(prefix="odradek-build-") as made:
            build(Path(made))
