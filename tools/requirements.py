"""Prints what the package and all its extras depend on, one requirement a line, for pip.

`tools/setup` installs dependencies apart from the package, so that a change of the sources does
not make pip look at every dependency again.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path) -> list[str]:
    """Every dependency of the project and of its extras, without the project itself."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    return sorted({line for line in wanted if not line.startswith(project["name"])})


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    sys.stdout.write("\n".join(requirements(root / "pyproject.toml")) + "\n")
