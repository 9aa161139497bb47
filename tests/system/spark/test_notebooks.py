"""If these fail, a notebook in examples/ does not run from top to bottom."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.deadlines import deadline_s

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("spark")]

NOTEBOOKS = sorted((Path(__file__).parents[3] / "examples" / "notebooks").glob("*.ipynb"))
PATIENCE_S = deadline_s(400)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run(notebook: Path, tmp_path: Path) -> None:
    """They are plain Python, so that they run in any kernel, and without one."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script = tmp_path / "cells.py"
    script.write_text("\n\n".join(sources), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "|" in done.stdout  # what `show` prints
