"""Nothing in the broker sleeps, polls or sets an alarm of its own: that is what timers are for."""

import ast
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src" / "odradek"

WAITING_CALLS = {"sleep", "call_later", "call_at", "wait_for", "Timer", "timeout", "timeout_at"}
POLLING_CALLS = {"select", "epoll", "settimeout"}

# Outside the broker: what drives timers, and programs that have nothing else to do than wait.
ELSEWHERE = {"timer", "client", "cli", "testing"}

# (file, call): why it may.
EXCUSED = {
    ("network/socket_server.py", "wait_for"): "bounds a shutdown, when no timer runs any more",
    ("server/broker.py", "sleep"): "sleep(0): lets the loop go round once, waits for nothing",
}


def waiting_calls(source: str) -> list[str]:
    """The names of the calls in a module that wait for time to go by, however they are reached."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = function.id if isinstance(function, ast.Name) else name
            if name in WAITING_CALLS | POLLING_CALLS:
                found.append(name)
            elif any(one.arg == "timeout" and not is_zero(one.value) for one in node.keywords):
                found.append(f"{name}(timeout=)")
    return found


def is_zero(value: ast.expr) -> bool:
    """Whether it says "do not wait"."""
    return isinstance(value, ast.Constant) and value.value == 0


def broker_sources() -> dict[str, str]:
    """Every module of the broker's floors, by its path within the package."""
    return {
        path.relative_to(SOURCES).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(SOURCES.rglob("*.py"))
        if path.relative_to(SOURCES).parts[0] not in ELSEWHERE
    }


def test_the_broker_waits_only_in_timers_and_purgatories() -> None:
    """A sleep here is a request that is late there, and a test that cannot move the clock."""
    found = {
        (name, call) for name, text in broker_sources().items() for call in waiting_calls(text)
    }
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
        ("threading.Timer(5, go).start()", "Timer"),
        ("event.wait(timeout=0.2)", "wait(timeout=)"),
        ("queue.get(timeout=1)", "get(timeout=)"),
        ("select.select([a], [], [], 0.1)", "select"),
    ],
)
def test_the_search_finds_what_it_is_for(line: str, call: str) -> None:
    """A check that sees nothing would always pass."""
    assert waiting_calls(line) == [call]
