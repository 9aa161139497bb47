"""The command line of `./test`."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from tools.suite import leftovers, slowness
from tools.suite.parts import CORE, OTHERS, PARTS, core_tests, files_of
from tools.suite.steps import (
    PYTEST,
    ROOT,
    TIMES,
    Commands,
    PytestRun,
    Result,
    Step,
    last_resort,
    run_all,
    say,
)

# Behind so many minutes no slow test starts.
SLOW_FOR_MINUTES: Final = 40
# One more than processors: a third of the quick tests' time is waiting, compiled.
QUICK_PROCESSES: Final = 3
# The peers that the core and the quick tests need.
CORE_PEERS: Final = ("kafka", "zookeeper", "spark-connector", "kafkajs", "kcat", "zsh")
# Floors all of whose modules are compiled, or nearly.
COMPILED_FLOORS: Final = tuple(
    f"tests/unit/{floor}"
    for floor in (
        *("timer", "purgatory", "records", "protocol", "storage", "replication"),
        *("coordinator", "handlers", "network", "metrics", "client"),
    )
)
UNCOMPILED: Final = {"ODRADEK_PURE": "1"}
BIN: Final = ROOT / ".venv" / "bin"


def main(arguments: Sequence[str]) -> int:
    """Runs what the arguments ask for; the exit status."""
    # Else each of the hundreds of processes of a run compiles all modules for itself.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    parser = command_line()
    options, for_pytest = parser.parse_known_args(arguments)
    if for_pytest and (options.all or options.part):
        parser.error(f"--all and --part take no arguments for pytest: {' '.join(for_pytest)}")
    if options.list:
        print(_listing())
        return 0
    if options.rounds:
        os.environ["ODRADEK_ROUNDS"] = str(options.rounds)
    elif options.all or options.part:
        # What is left out where nobody asks for rounds is of "everything" too.
        os.environ.setdefault("ODRADEK_ROUNDS", "1")
    if for_pytest:
        return _only_pytest(for_pytest, is_quick=options.quick)
    return _run(options)


def command_line() -> argparse.ArgumentParser:
    """The flags of `./test`; what else is given goes to pytest."""
    parser = argparse.ArgumentParser(prog="./test", allow_abbrev=False)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--quick", action="store_true", help="compiled, without the slow tests")
    what.add_argument("--all", action="store_true", help="everything, part by part")
    what.add_argument("--part", choices=parts(), help="one part of --all")
    what.add_argument("--list", action="store_true", help="the parts, and their last times")
    parser.add_argument("--rounds", type=int, metavar="N", help="N times as many kills and seeds")
    return parser


def is_ci() -> bool:
    """Whether every peer has to be there."""
    return "CI" in os.environ


def _only_pytest(arguments: Sequence[str], *, is_quick: bool) -> int:
    selects = ["-m", "not slow"] if is_quick else []
    return subprocess.call([*PYTEST, *last_resort(), *arguments, *selects], cwd=ROOT)


def _run(options: argparse.Namespace) -> int:
    if is_ci():
        os.environ.setdefault("ODRADEK_PEERS", "required")
    # Both are told by ./test, which has set up the environment before.
    started = float(os.environ.get("ODRADEK_STARTED", time.time()))  # noqa: TID251
    setup = Result("setup", time.time() - started, is_passed=True)  # noqa: TID251
    # What a killed run leaves is known by the mark of this process.
    leftovers.mark_this_process()
    _end_leftovers()
    os.environ.setdefault(slowness.VARIABLE, f"{slowness.measure():.2f}")
    with leftovers.temporary_home():
        try:
            is_passed = run_all(_steps(options, started), [setup])
        finally:
            _end_leftovers()
    return int(not is_passed)


def _end_leftovers() -> None:
    for command in leftovers.end_leftovers():
        say(f"ended what an earlier test run left: {command}")


def _steps(options: argparse.Namespace, started: float) -> list[Step]:
    if options.part:
        return _part(options.part)
    quick = [*_checks(), _quick_tests()]
    if options.quick:
        return quick
    quick.append(_uncompiled_floors())
    if options.all:
        return quick + [step for part in parts() for step in _part(part)]
    return [*quick, _core(started + 60 * SLOW_FOR_MINUTES)]


def _checks() -> list[Step]:
    # All tests are compiled beside mypy, which uses one processor. Otherwise each process of the
    # quick tests compiles all of them, at the same time.
    collect = shlex.join([*PYTEST, "--collect-only", "-qqq", "-m", "not slow"])
    return [
        Commands("style", [*_linters(), [f"{BIN}/ruff", "format", "--check"]]),
        Commands("types", [[f"{BIN}/mypy"], ["sh", "-c", f"{collect} > /dev/null"]]),
        Commands("floors", [[f"{BIN}/lint-imports"]]),
        Commands("peers", [[sys.executable, "tools/peers.py", *CORE_PEERS]], decides=is_ci()),
    ]


def _linters() -> list[list[str]]:
    workflows = sorted(str(path) for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    schema = "vendor.github-workflows"
    return [
        [f"{BIN}/ruff", "check", "."],
        [f"{BIN}/check-jsonschema", "--builtin-schema", schema, *workflows],
    ]


def _quick_tests() -> Step:
    selects = ["-m", "not slow"]
    return PytestRun("quick tests, compiled", selects, processes=QUICK_PROCESSES, in_memory=True)


def _uncompiled_floors() -> Step:
    selects = ["-m", "not slow", *COMPILED_FLOORS]
    return PytestRun("quick tests of compiled floors, uncompiled", selects, UNCOMPILED)


def _core(slow_until: float) -> Step:
    environment = {"ODRADEK_SLOW_UNTIL": str(slow_until)}
    return PytestRun("core", core_tests(), environment, is_complete=True)


def _part(name: str) -> list[Step]:
    if name in _others():
        return [_others()[name]]
    paths = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    return [PytestRun(name, ["-m", "slow", *files_of(name, paths)])]


def parts() -> list[str]:
    """The names of all parts, in the order of `--all`."""
    return [*_others(), *PARTS]


def _others() -> dict[str, Step]:
    """The parts that are not slow tests."""
    quick = ["-m", "not slow"]
    return {
        "uncompiled": PytestRun("uncompiled", quick, UNCOMPILED),
        "laptops": PytestRun(
            "laptops",
            [*quick, "tests/unit"],
            UNCOMPILED | {"ODRADEK_WITHOUT": "all"},
            plugins=["tests.laptops"],
        ),
        "pythons": Commands("pythons", [[sys.executable, "-m", "tools.interpreters", "try"]]),
        "newest": Commands("newest", [["tools/newest"]]),
    }


def _listing() -> str:
    """Each part with what it holds, its tests and its seconds when it ran last."""
    lines = ["./test runs the quick tests and the core:"]
    lines += [f"  {thing}: {', '.join(tests)}" for thing, tests in CORE.items()]
    lines += ["", f"{'part':<14}{'tests':>7}{'seconds':>9}  holds"]
    for part in parts():
        tests, seconds = _last(part)
        holds = OTHERS.get(part) or " ".join(PARTS[part])
        lines.append(f"{part:<14}{tests:>7}{seconds:>9}  {holds}")
    return "\n".join(lines)


def _last(part: str) -> tuple[str, str]:
    path = TIMES / f"{part}.json"
    if not path.exists():
        return "", ""
    last = json.loads(path.read_text())
    tests = last["passed"] + len(last["failed"])
    return str(tests or ""), f"{last['seconds']:.0f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
