"""Time and randomness are handed in: nothing below the rim has a clock or randomness of its own.

Otherwise a test that moves the clock, or asks for the same ids again, gets them nearly always.
"""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.sources import reads_sources, tree_of

pytestmark = reads_sources

Rule = Callable[[ast.Module], Iterator[str]]
"""Lists what a module uses against it."""

SOURCES = Path(__file__).resolve().parents[2] / "src" / "odradek"

# Programs and clients run beside a broker, on the time and the randomness of the machine.
RIM = {"cli", "client", "tables", "tasks", "testing"}

FORBIDDEN = {
    "time": set(),  # all of it
    "secrets": set(),
    "random": {"Random"},  # the port; whoever has one was handed it
    "uuid": {"UUID"},
    "datetime": {"UTC", "datetime", "timedelta"},
}
"""Modules, and what may be imported of them."""
# These have no clock of a test, and read the machine's where nobody can freeze it: in `clock`.
CLIENTS = {"client", "tables", "tasks"}
NOT_READING = {"sleep"}
FORBIDDEN_CALLS = {"urandom", "getrandom", "uuid1", "uuid4", "now", "utcnow", "today", "times"}
IMPORTING = {"__import__", "find_spec", "import_module"}

EXCUSED = {
    ("clock.py", "time"): "is the port",
    ("protocol/schemas/message_schemas.py", "datetime"): "which kio derives from; nobody reads it",
    ("server/monitoring/idleness.py", "time"): "the processor's time, which no clock tells",
    ("server/randomness.py", "random.SystemRandom"): "where random numbers come from",
    ("server/broker.py", "random.SystemRandom"): "those of a broker that was not given any",
}


def modules(*, clients: bool) -> list[str]:
    """The modules of clients, or all outside the rim."""
    found = (path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py"))
    floors = {one: one.split("/")[0] for one in found}
    return sorted(
        one for one, floor in floors.items() if (floor in CLIENTS if clients else floor not in RIM)
    )


def own_time_and_randomness(tree: ast.Module) -> Iterator[str]:
    """The names of the machine's time and randomness that a module uses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN:
            names = {one.name for one in node.names} - FORBIDDEN[node.module]
            if names:
                everything = not FORBIDDEN[node.module]
                yield from [node.module] if everything else (f"{node.module}.{n}" for n in names)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in FORBIDDEN)
        elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_CALLS:
            yield node.attr
        elif isinstance(node, ast.Call) and called(node) in IMPORTING:
            yield from (one.value for one in node.args if is_forbidden(one))  # type: ignore[attr-defined]


def frozen_readings(tree: ast.Module) -> Iterator[str]:
    """The functions of `time` that a module uses and that read a clock, and `datetime.now`."""
    nodes = list(ast.walk(tree))
    imported = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (one.name for one in node.names if one.name not in NOT_READING)
        elif isinstance(node, ast.Attribute):
            owner = getattr(node.value, "id", "")
            is_of_time = owner == "time" in imported and node.attr not in NOT_READING
            if is_of_time or (owner == "datetime" and node.attr in FORBIDDEN_CALLS):
                yield node.attr


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def is_forbidden(argument: ast.expr) -> bool:
    """True if an argument is a forbidden module's name, written out."""
    return isinstance(argument, ast.Constant) and argument.value in FORBIDDEN


BROKERS_RULE, CLIENTS_RULE = own_time_and_randomness, frozen_readings


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (BROKERS_RULE, "import time"),
        (BROKERS_RULE, "from time import monotonic"),
        (BROKERS_RULE, "import os\nos.urandom(4)"),
        (BROKERS_RULE, "from importlib import import_module\nimport_module('time')"),
        (BROKERS_RULE, "from os import path\nimport secrets"),
        (BROKERS_RULE, "from random import Random, SystemRandom"),
        (BROKERS_RULE, "from random import choice"),
        (BROKERS_RULE, "import uuid\nuuid.uuid4()"),
        (BROKERS_RULE, "from uuid import UUID, uuid4"),
        (BROKERS_RULE, "from datetime import datetime\ndatetime.now()"),
        (CLIENTS_RULE, "import time\ntime.monotonic()"),
        (CLIENTS_RULE, "import time\ndef ask(now=time.time): ..."),
        (CLIENTS_RULE, "from time import monotonic"),
        (CLIENTS_RULE, "from datetime import datetime\ndatetime.now()"),
    ],
)
def test_it_is_noticed(rule: Rule, source: str) -> None:
    """A rule that sees nothing holds everywhere."""
    assert list(rule(ast.parse(source)))


@pytest.mark.parametrize(
    ("rule", "is_client", "excused"),
    [(BROKERS_RULE, False, set(EXCUSED)), (CLIENTS_RULE, True, set())],
    ids=["brokers", "clients"],
)
def test_nobody_has_time_or_randomness_of_its_own(
    rule: Rule, is_client: bool, excused: set[tuple[str, str]]
) -> None:
    """Somebody in a broker reads the machine's clock, or draws an id, where a test cannot reach it.
    Or a client reads a clock that freezegun stops: a wait for an answer would never end, and tokens
    would be judged by a date that nobody else has."""
    found = {
        (module, what)
        for module in modules(clients=is_client)
        for what in rule(tree_of(SOURCES / module))
    }
    assert found == excused
