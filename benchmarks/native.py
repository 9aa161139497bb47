"""Compiles benchmark loops and the package's hot modules in one piece, once, into `.cache/`.

A loop in interpreted Python takes longer than what it measures. The broker's own operations
are compiled together with the timer, so that is how the fake ones of a benchmark are compiled
too: the sources of `odradek` and of the benchmark are copied into a folder named by their
contents and built there, and the measuring process gets that folder as its first path.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "benchmarks"

PACKAGE_FOLDERS = ("timer", "purgatory")
PACKAGE_FILES = ("__init__.py", "_lazy.py", "_pure.py", "clock.py", "version.py")
NATIVE_MODULES = (
    "odradek/clock.py",
    "odradek/timer/timer_task.py",
    "odradek/timer/timing_wheel.py",
    "odradek/timer/timer.py",
    "odradek/timer/inbox.py",
    "odradek/timer/nap.py",
    "odradek/timer/system_timer.py",
    "odradek/timer/mock_timer.py",
    "odradek/purgatory/delayed_operation.py",
    "odradek/purgatory/watchers.py",
    "odradek/purgatory/purgatory.py",
)
BENCHMARK_FILES = (
    "benchmarks/__init__.py",
    "benchmarks/timer/__init__.py",
    "benchmarks/timer/loops.py",
    "benchmarks/timer/measure.py",
    "benchmarks/purgatory/__init__.py",
    "benchmarks/purgatory/harness.py",
    "benchmarks/purgatory/queue_purgatory.py",
    "benchmarks/purgatory/workload.py",
    "benchmarks/purgatory/measure.py",
)
NATIVE_BENCHMARKS = (
    "benchmarks/timer/loops.py",
    "benchmarks/purgatory/harness.py",
    "benchmarks/purgatory/queue_purgatory.py",
)
SETUP = """
import os

os.environ["CFLAGS"] = "-fno-semantic-interposition"  # as the package is compiled

from mypyc.build import mypycify
from setuptools import setup

modules = mypycify(["--strict", *{modules!r}], opt_level="3", debug_level="0")
setup(name="measured", ext_modules=modules)
"""


def pure() -> bool:
    """Whether the sources are to run uncompiled."""
    return os.environ.get("ODRADEK_PURE", "0") not in ("", "0")


def run(module: str, *arguments: str) -> str:
    """The output of a measuring process: compiled unless `ODRADEK_PURE` says otherwise.

    Raises:
        SystemExit: the process failed; it has said why.
    """
    paths = (str(ROOT / "src"), str(ROOT)) if pure() else (str(compiled()),)
    # -P: the present directory has the same packages, uncompiled, and would come first.
    command = [sys.executable, "-P", "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{module} ended with status {done.returncode}")
    return done.stdout


def compiled() -> Path:
    """The folder with the compiled copy, made now if these sources were never compiled before.

    A process that comes while another one makes it waits for that one.
    """
    files = sources()
    digest = hashlib.sha256(SETUP.encode() + sys.version.encode())
    for name, path in sorted(files.items()):
        digest.update(name.encode() + path.read_bytes())
    folder = CACHE / f"native-{digest.hexdigest()[:16]}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            build(folder, files)
    return folder


def sources() -> dict[str, Path]:
    """The copied file: its name in the folder and the file it comes from."""
    package = ROOT / "src" / "odradek"
    paths = [package / name for name in PACKAGE_FILES]
    for folder in PACKAGE_FOLDERS:
        paths.extend(sorted((package / folder).glob("*.py")))
    found = {str(path.relative_to(ROOT / "src")): path for path in paths}
    return found | {name: ROOT / name for name in BENCHMARK_FILES}


def build(folder: Path, files: dict[str, Path]) -> None:
    """Copies and compiles.

    Raises:
        SystemExit: the compiler failed; its last words are shown.
    """
    print(f"compiling the benchmarks into {folder.relative_to(ROOT)} ...", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    for name, path in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / name)
    modules = [*NATIVE_MODULES, *NATIVE_BENCHMARKS]
    (folder / "setup.py").write_text(SETUP.format(modules=modules), encoding="utf-8")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit("\n".join([*(done.stdout + done.stderr).splitlines()[-20:], "compiling failed"]))
    shutil.rmtree(folder / "build", ignore_errors=True)
    (folder / ".complete").touch()
