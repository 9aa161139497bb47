"""The broker's code does not sleep, poll or set an alarm of its own: that is what timers are
for."""

import ast
from pathlib import Path

import pytest
from tests.sources import reads_sources, tree_of

pytestmark = reads_sources

SOURCES = Path(__file__).parents[3] / "src" / "odradek"

# Whatever is done with them: called, handed on, imported under another name.
WAITING = {"sleep", "call_later", "call_at", "wait_for", "timeout_at"}
POLLING = {"select", "selectors", "epoll", "settimeout", "sched"}
# Only when they are called: the broker has things of its own by these names.
WAITING_CALLS = {"timeout"}
# With a time limit as their argument; without one they wait for what happens.
LIMITED_CALLS = {"wait", "result", "acquire", "join", "get"}

# Outside the broker: what drives timers, and programs that have nothing else to do than wait.
ELSEWHERE = {"timer", "client", "tables", "cli", "testing"}

# (file, call): why it may.
ZOOKEEPER = "metadata/zookeeper/connection"
EXCUSED = {
    ("network/socket_server.py", "wait_for"): "bounds a shutdown, when no timer runs any more",
    ("network/socket_server.py", "sleep(0)"): "lets the loop make what it has accepted, to drop it",
    ("server/in_process/settling.py", "sleep(0)"): "lets the loop go round once, waits for nothing",
    ("network/readiness.py", "select"): "asks without waiting",
    (
        "server/monitoring/responder.py",
        "wait_for",
    ): "bounds a scrape's patience, in real time: who scrapes is on no clock of a test",
    ("server/monitoring/monitoring.py", "sleep(0)"): "has others served between two slices",
    ("server/in_process/calls/topic_reader.py", "sleep(0)"): "has others served between two reads",
    (
        "server/in_process/calls/broker_helpers.py",
        "sleep(0)",
    ): "lets a releaser read its log, a slice in a turn",
    (
        "server/in_process/calls/broker_helpers.py",
        "timeout",
    ): "bounds a caller's patience, in real time",
    (
        "server/in_process/calls/group_helpers.py",
        "sleep(0)",
    ): "lets groups be loaded, a slice in a turn",
    (
        "server/in_process/calls/group_helpers.py",
        "timeout",
    ): "bounds a caller's patience, in real time",
    ("server/faults/board.py", "timeout"): "the same",
    (
        "server/in_process/calls/broker_calls.py",
        "wait_for",
    ): "the same, under the name that its caller uses",
    (
        f"{ZOOKEEPER}/connecting.py",
        "KazooClient(timeout=)",
    ): "the session's, kept by ZooKeeper",
    (f"{ZOOKEEPER}/connecting.py", "create_connection(timeout=)"): "kazoo's, on its thread",
    (f"{ZOOKEEPER}/connecting.py", "settimeout"): "the same, of the handshake of TLS",
    (f"{ZOOKEEPER}/connecting.py", "select"): "kazoo's, on its thread",
    (f"{ZOOKEEPER}/connecting.py", "start(timeout=)"): "bounds a start, before timers run",
    (
        f"{ZOOKEEPER}/connecting.py",
        "get(timeout=)",
    ): "the same: the answer that says that the login is through",
    (
        f"{ZOOKEEPER}/session.py",
        "get(timeout=)",
    ): "the same: what a store reads while it opens",
}


def waits(tree: ast.Module) -> list[str]:
    """The calls of a module that wait for time to go by, however they are reached."""
    found = []
    nodes = list(ast.walk(tree))
    naps = {id(node.func) for node in nodes if isinstance(node, ast.Call) and is_nap(node)}
    names = WAITING | POLLING
    for node in nodes:
        if id(node) in naps:
            found.append("sleep(0)")
        elif isinstance(node, ast.Call):
            found += limited_call(node)
        elif isinstance(node, ast.ImportFrom):
            found += [one.name for one in node.names if one.name in names]
            found += [f"threading.{one.name}" for one in node.names
                      if (node.module, one.name) == ("threading", "Timer")]  # fmt: skip
        elif isinstance(node, ast.Import):
            found += [one.name for one in node.names if one.name in names]
        elif isinstance(node, ast.Attribute) and is_thread_timer(node):
            found.append("threading.Timer")
        elif isinstance(node, ast.Attribute | ast.Name) and name_of(node) in names:
            found.append(name_of(node))
    return found


def is_thread_timer(node: ast.Attribute) -> bool:
    """Tells the library's timer from the broker's, which has the same name."""
    return node.attr == "Timer" and name_of(node.value) == "threading"


def name_of(node: ast.expr) -> str:
    """The last part of a name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def limited_call(call: ast.Call) -> list[str]:
    """The call, if it waits up to a time limit."""
    name = name_of(call.func)
    if name in WAITING_CALLS:
        return [name]
    if any(one.arg == "timeout" and not is_zero(one.value) for one in call.keywords):
        return [f"{name}(timeout=)"]
    # A second argument of `get` is a time limit only after a first that says "block".
    first, last = call.args[:1], call.args[-1:]
    if name == "get" and not (len(call.args) == 2 and is_true(first[0])):
        return []
    return [f"{name}(limit)"] if name in LIMITED_CALLS and any(map(is_number, last)) else []


def is_nap(call: ast.Call) -> bool:
    """Tells `sleep(0)`."""
    return name_of(call.func) == "sleep" and [is_zero(one) for one in call.args] == [True]


def is_zero(value: ast.expr) -> bool:
    """Tells an argument that says "do not wait"."""
    return isinstance(value, ast.Constant) and value.value == 0


def is_true(value: ast.expr) -> bool:
    """Tells the constant."""
    return isinstance(value, ast.Constant) and value.value is True


def is_number(value: ast.expr) -> bool:
    """Tells a number, a constant that says it is a time, and what is reckoned from one."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) or is_number(value.right)
    if isinstance(value, ast.Constant):
        return type(value.value) in (int, float) and value.value != 0
    return name_of(value).endswith(("_MS", "_S", "_SECONDS"))


def broker_sources() -> dict[str, ast.Module]:
    """Every module of the broker's floors, by its path within the package."""
    return {
        path.relative_to(SOURCES).as_posix(): tree_of(path)
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).parts[0] not in ELSEWHERE
    }


def test_the_broker_waits_only_in_timers_and_purgatories() -> None:
    """A sleep here is a request that is late there, and a test that cannot move the clock."""
    found = {(name, call) for name, tree in broker_sources().items() for call in waits(tree)}
    assert found == set(EXCUSED), "what waits needs a timer; what is gone needs no excuse"


def test_every_floor_of_the_broker_is_searched() -> None:
    """A floor that is left out may sleep as it likes."""
    floors = {name.split("/")[0] for name in broker_sources()}
    there = {path.name for path in SOURCES.iterdir() if (path / "__init__.py").exists()}
    assert there - ELSEWHERE <= floors


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("time.sleep(1)", "sleep"),
        ("sleep(0.1)", "sleep"),
        ("loop.call_later(1, go)", "call_later"),
        ("await asyncio.wait_for(done, 5)", "wait_for"),
        ("later = loop.call_later", "call_later"),
        ("from time import sleep as rest", "sleep"),
        ("import selectors", "selectors"),
        ("await asyncio.sleep(0)", "sleep(0)"),
        ("threading.Timer(5, go).start()", "threading.Timer"),
        ("from threading import Timer", "threading.Timer"),
        ("event.wait(0.2)", "wait(limit)"),
        ("event.wait(WAIT_MS / 1000)", "wait(limit)"),
        ("thread.join(5)", "join(limit)"),
        ("queue.get(True, 1)", "get(limit)"),
        ("lock.acquire(True, LIMIT_S)", "acquire(limit)"),
        ("event.wait(timeout=0.2)", "wait(timeout=)"),
        ("queue.get(timeout=1)", "get(timeout=)"),
        ("select.select([a], [], [], 0.1)", "select"),
        ("async with asyncio.timeout(5): pass", "timeout"),
    ],
)
def test_the_search_finds_what_it_is_for(line: str, call: str) -> None:
    """A check that sees nothing would always pass."""
    assert set(waits(ast.parse(line))) == {call}


@pytest.mark.parametrize(
    "line", ["', '.join(names)", "headers.get(5)", "names.get(key, 0)", "future.result()",
             "await event.wait()", "timer.add(task)", "queue.get(timeout=0)"],
)  # fmt: skip
def test_what_does_not_wait_for_time_is_left_alone(line: str) -> None:
    """A check that finds everything would be switched off."""
    assert waits(ast.parse(line)) == []
