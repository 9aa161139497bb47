"""How much a folder of sources or tests, and a file of the sources, may hold.

If these fail, a reader does not find a module by its folder's listing any more, or reads a file
that is about several things.
"""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MODULES = 15
LINES = 600


def sources() -> list[Path]:
    found = sorted((ROOT / "src").rglob("*.py"))
    assert len(found) > 1_000
    return found


def test_a_folder_past_fifteen_modules_has_inner_walls() -> None:
    """Modules whose names begin with an underscore are the package's own, and `conftest.py` has no
    other place."""
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert len(tests) > 500
    modules = Counter(each.parent for each in sources() + tests if not each.name.startswith("_"))
    assert {str(folder): n for folder, n in modules.items() if n > MODULES} == {}


def test_a_file_has_at_most_six_hundred_lines() -> None:
    lengths = {str(path): len(path.read_text("utf-8").splitlines()) for path in sources()}
    assert {path: length for path, length in lengths.items() if length > LINES} == {}
