"""`./run` and `./test` in folders with other names than the authors': `odradek`, `my clone`.

The copy has a virtual environment of its own that borrows this one's packages, so that nothing
is installed or compiled again.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.deadlines import deadline_s
from tools import peers

from odradek.cli.local_cluster import zookeeper

ROOT = Path(__file__).parents[2]
TIMEOUT_S = deadline_s(900)
# Tests that look at paths of the checkout.
SENSITIVE = (
    *(f"tests/architecture/test_{name}.py" for name in ("straight_line", "what_users_read")),
    "tests/architecture/test_packaging.py",
    "tests/unit/examples/test_flights.py",
)


def tracked(*patterns: str) -> list[str]:
    """The files that a clone would have, as they are here now."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no git checkout: there is nothing to clone")
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def clone(target: Path) -> None:
    for name in tracked():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    environment = target / ".venv"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, cwd=target
    )
    [packages] = (environment / "lib").glob("python*/site-packages")
    borrowed = [str(target / "src"), sysconfig.get_paths()["purelib"]]
    (packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n", encoding="utf-8")
    # What tools/setup writes down when it has nothing left to do.
    native = subprocess.run(
        [str(environment / "bin" / "python"), "setup.py", "--print-native"],
        cwd=target,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for stamp, names in (
        (".odradek-dependencies", ["tools/requirements.lock"]),
        (".odradek-native", ["setup.py", "pyproject.toml", *native]),
    ):
        content = b"".join((target / name).read_bytes() for name in names)
        (environment / stamp).write_text(hashlib.sha256(content).hexdigest(), encoding="utf-8")


def run(folder: Path, *command: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        command,
        cwd=folder.parent,
        env=kept | {"ODRADEK_PURE": "1", "XDG_CACHE_HOME": str(folder.parent / "cache")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [("odradek", []), ("my clone", ["--cluster"])])
def test_both_commands(tmp_path: Path, name: str, options: list[str]) -> None:
    """After a clone into a folder of that name, neither the tests nor the main job run; a cluster
    loses a record when a broker is killed."""
    folder = tmp_path / name
    clone(folder)
    said = run(folder, str(folder / "test"), "--quick", "-q", *SENSITIVE)
    assert "passed" in said
    assert "installing" not in said, "the copy was set up anew"
    out = tmp_path / "its out"
    if options:
        fetch_zookeeper(tmp_path / "cache")
    run(folder, str(folder / "run"), "--limit", "1000", "--out", str(out), *options)
    assert (out / "report.html").exists()
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert (summary["lost"], summary["duplicated"]) == (0, 0)
    assert ("failover" in summary) == ("--cluster" in options)


def fetch_zookeeper(cache: Path) -> None:
    """Puts the jars where the cluster looks for those that it has fetched."""
    try:
        jars = peers.zookeeper_jars()
    except peers.PeerUnavailable as reason:
        pytest.skip(f"PEER MISSING, NOT TESTED: {reason}")
    folder = cache / "odradek" / f"zookeeper-{zookeeper.VERSION}"
    folder.mkdir(parents=True)
    for jar in jars:
        shutil.copy(jar, folder)
