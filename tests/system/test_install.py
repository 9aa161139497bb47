"""The package as a user installs it: from a plain copy of the sources, into a fresh environment.

The folder is called `odradek`, which is what cloning gives. Dependencies come from the package
index, as they would for a user.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1200
SNIPPET = re.compile(r"In a test, with any client.*?```python\n(.*?)```", re.DOTALL)


def plain_copy(directory: Path) -> Path:
    """The sources as a release would have them: nothing that was built."""
    target = directory / "odradek"
    unwanted = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info", "build")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        target.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, target / name)
    shutil.copytree(ROOT / "src", target / "src", ignore=unwanted)
    return target


def run(*command: str, cwd: Path, **environment: str) -> str:
    """Runs a command outside of the checkout, with nothing of this environment's Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept.pop("ODRADEK_PURE", None)
    done = subprocess.run(
        command,
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-4000:]
    return output


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["without a compiler", "with a compiler"])
def test_an_install_as_readme_says(tmp_path: Path, compiler: str) -> None:
    """A user's first command would fail, or install something that does not run."""
    sources = plain_copy(tmp_path)
    environment = tmp_path / "venv"
    run(sys.executable, "-m", "venv", str(environment), cwd=tmp_path)
    python = str(environment / "bin" / "python")
    is_compiled = compiler == "with a compiler"
    if is_compiled and not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("there is no C compiler here")
    path = {} if is_compiled else {"PATH": str(environment / "bin")}
    said = run(python, "-m", "pip", "install", "-v", str(sources), cwd=tmp_path, **path)
    assert ("installing without compiled modules, slower" in said) is not is_compiled
    run(python, "-m", "pip", "install", "-q", "confluent-kafka", cwd=tmp_path)
    found = SNIPPET.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found is not None, "README has no first minute"
    run(python, "-c", found.group(1), cwd=tmp_path)
    built = list((environment / "lib").rglob("odradek/**/*.so"))
    assert bool(built) is is_compiled
    assert "odradek 0." in run(str(environment / "bin" / "odradek"), "--version", cwd=tmp_path)
