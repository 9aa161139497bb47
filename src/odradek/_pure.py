"""Runs the package from its sources even where compiled modules lie beside them.

A compiled module and its source share a name, and Python prefers the compiled one. With
`ODRADEK_PURE=1` this finder runs before the ordinary ones and sees sources only, so the same
installation can be tried both ways.
"""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class SourceOnlyFinder:
    """A meta path finder that answers for one package and looks at `.py` files only."""

    def __init__(self, package: str) -> None:
        self._prefix = package + "."

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None or not fullname.startswith(self._prefix):
            return None
        loader = (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
        for entry in path:
            spec = importlib.machinery.FileFinder(entry, loader).find_spec(fullname, target)
            if spec is not None:
                return spec
        return None


def install_if_asked(package: str) -> None:
    """Puts the finder first when `ODRADEK_PURE` is set to anything but 0 or nothing."""
    if os.environ.get("ODRADEK_PURE", "0") not in ("", "0"):
        sys.meta_path.insert(0, SourceOnlyFinder(package))
