"""The commands and code that README and docs tell people to type work as written.

Python blocks run in a fresh interpreter with warnings as errors; blocks that follow each other on
a page share their names, as a reader at a prompt would have it. Blocks with tests are run by
pytest, together with those that begin with the name of a file (`# conftest.py`). The first minute's
shell blocks run against the broker that they start themselves; only the port is another.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tests.system.processes import serving
from tools import peers
from tools.free_port import free_port

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
TIMEOUT_S = deadline_s(240)
# What a block says when it needs more than this package and the clients that its tests know.
NEEDED = {"fastapi": "fastapi", "pytest.mark.asyncio": "pytest_asyncio"}
PORT = "9092"
# Blocks of Python that none of the tests here runs, by their page, and why.
NOT_RUN = {
    "docs/client/tasks.md": "an app of a broker on the usual port; the page's other block runs one",
    "docs/spark/reference.md": "the session that README's block makes, which runs",
    "docs/spark/testing.md": "a fixture alone, which a session of Spark would need",
}
PAGES_OF_FAULTS = ("docs/faults.md", "docs/client/tasks.md")
"""What these show is told by clients and workers as well."""


def blocks(page: Path, language: str) -> list[str]:
    return [
        text for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language
    ]


def pages_with_python() -> list[Path]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if quick_blocks(page)]


def quick_blocks(page: Path) -> list[str]:
    """Blocks that need neither Spark, nor a broker on the usual port, nor pytest."""
    return [
        block
        for block in blocks(page, "python")
        if not ("spark" in block or PORT in block or "def test_" in block or FILE.match(block))
    ]


def pages_with_tests() -> list[Path]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in pages if files_with_tests(page)]


def files_with_tests(page: Path) -> dict[str, str]:
    """The page's files by name, and its tests that are in none."""
    files = {}
    for number, block in enumerate(blocks(page, "python")):
        if named := FILE.match(block):
            files[named[1]] = block
        elif "def test_" in block:
            files[f"test_block_{number}.py"] = block
    return files


def attempt(
    command: list[str], folder: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def run(command: list[str], folder: Path, silent: re.Pattern[str] | None = None) -> str:
    done = attempt(command, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert silent is None or not silent.search(done.stderr), done.stderr
    return done.stdout


@pytest.mark.parametrize("page", pages_with_python(), ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run(page: Path, tmp_path: Path) -> None:
    """A page shows code that does not work any more; or it prints what the page does not show, as
    a client does whose broker is gone."""
    is_of_faults = str(page.relative_to(ROOT)) in PAGES_OF_FAULTS
    code = "\n".join(quick_blocks(page))
    silent = re.compile("Connection refused" if is_of_faults else ".")
    run([sys.executable, "-W", "error", "-c", code], tmp_path, silent)


def test_every_block_of_python_is_run() -> None:
    """A block that no test runs is the one that stops working."""
    left_out = set()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        run_by_others = [*quick_blocks(page), *files_with_tests(page).values()]
        if page.name == "README.md":  # by the first minute
            run_by_others += [block for block in blocks(page, "python") if "spark" in block]
        if set(blocks(page, "python")) - set(run_by_others):
            left_out.add(str(page.relative_to(ROOT)))
    assert left_out == set(NOT_RUN)


def is_with_spark(page: Path) -> bool:
    return any("odradek_spark" in text for text in files_with_tests(page).values())


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[pytest.mark.slow] if is_with_spark(page) else [],
        )
        for page in pages_with_tests()
    ],
)
def test_tests_of_a_page_pass(page: Path, tmp_path: Path) -> None:
    """The tests that a page shows do not pass, or its fixture is not there on install."""
    for name, text in files_with_tests(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        for words, module in NEEDED.items():
            if words in text and find_spec(module) is None:
                pytest.skip(f"PEER MISSING, NOT TESTED: {module} is not installed")
    said = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)
    assert re.search(r"\b\d+ passed", said), said


@pytest.mark.slow
def test_the_first_minute_in_a_shell_and_in_spark(tmp_path: Path) -> None:
    """README's commands print something else than it says, or Spark does not see the topic."""
    try:
        peers.kcat()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")
    port = str(free_port())
    start, talk = (block.replace(PORT, port) for block in blocks(ROOT / "README.md", "sh"))
    program = str(Path(sys.executable).parent / start.split()[0])
    with serving(program, *start.split()[1:], cwd=tmp_path) as ready:
        expected = (
            rf"odradek ready bootstrap=127.0.0.1:{port} broker=1 cluster=\S+ started_in_ms=\d+\n"
        )
        assert re.fullmatch(expected, ready)
        assert run(["bash", "-e", "-c", talk], tmp_path).splitlines() == ["one spool of thread"]
        spark = [
            b.replace(PORT, port) for b in blocks(ROOT / "README.md", "python") if "spark" in b
        ]
        shown = run([sys.executable, "-c", "\n".join(spark)], tmp_path)
        assert "|one spool of thread|" in shown


@pytest.mark.slow
def test_a_protected_broker_from_nothing(tmp_path: Path) -> None:
    """The page on security ends with a broker that nobody reaches, or with one that all reach."""
    if shutil.which("openssl") is None:
        pytest.skip("PEER MISSING, NOT TESTED: openssl")
    port = str(free_port())
    page = ROOT / "docs/operating/security.md"
    prepare, start, talk, again = (block.replace(PORT, port) for block in blocks(page, "sh"))
    own = Path(sys.executable).parent
    programs = os.environ | {"PATH": f"{own}{os.pathsep}{os.environ['PATH']}"}
    attempt(["bash", "-e", "-c", prepare], tmp_path, programs).check_returncode()
    broker = subprocess.Popen(
        ["bash", "-c", f"exec {start}"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=programs,
    )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline().startswith("odradek ready")
        done = attempt(["bash", "-e", "-c", talk], tmp_path, programs)
        assert "who is there" in done.stdout.splitlines(), done.stderr
        create = f"odradek topics --bootstrap-server localhost:{port} --create --topic other"
        denied = attempt(
            [*create.split(), "--command-config", "client.properties"], tmp_path, programs
        )
        assert denied.returncode == 1
        assert "Topic authorization failed" in denied.stdout + denied.stderr
        changed = attempt(["bash", "-e", "-c", again], tmp_path, programs)
        assert "'alice' are SCRAM-SHA-512=iterations=8192" in changed.stdout, changed.stderr
        (tmp_path / "client.properties").write_text("")
        list_topics = f"odradek topics --bootstrap-server localhost:{port} --list"
        refused = attempt(
            [*list_topics.split(), "--command-config", "client.properties"], tmp_path, programs
        )
        assert refused.returncode == 1
        assert "letters" not in refused.stdout
    finally:
        broker.terminate()
        said = broker.communicate(timeout=TIMEOUT_S)[1]
    assert broker.returncode == 0
    assert "secret" not in said
    assert "geheim" not in said
    assert "the client uses PLAINTEXT or SASL_PLAINTEXT where this listener has TLS" in said
