"""Nothing in the broker sleeps, polls or sets an alarm of its own: that is what timers are for."""

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src" / "odradek"

WAITING_CALLS = {"sleep", "call_later", "call_at", "wait_for", "Timer", "timeout", "timeout_at"}

# Outside the broker: what drives timers, and programs that have nothing else to do than wait.
ELSEWHERE = ("timer", "client", "cli", "testing")

# (file, call): why it may.
EXCUSED = {
    ("network/socket_server.py", "wait_for"): "bounds a shutdown, when no timer runs any more",
    ("server/broker.py", "sleep"): "sleep(0): lets the loop go round once, waits for nothing",
}


def waiting_calls(path: Path) -> list[str]:
    """The names of the calls in a module that wait for time to go by."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in WAITING_CALLS:
                found.append(name)
    return found


def test_the_broker_waits_only_in_timers_and_purgatories() -> None:
    """A sleep here is a request that is late there, and a test that cannot move the clock."""
    offences = set()
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith(ELSEWHERE):
            offences |= {(name, call) for call in waiting_calls(path)}
    assert offences - set(EXCUSED) == set()


def test_the_search_finds_what_it_is_for() -> None:
    """A check that sees nothing would always pass."""
    assert "call_later" in waiting_calls(SOURCES / "timer" / "asyncio_driver.py")
