"""Lets a package export names whose modules are imported at their first use, and a module use
another that is imported at its first use.

So a client imports no broker, a tool no broker settings and blocking code no event loop, though one
import statement offers them all. The type checker reads the same names under `TYPE_CHECKING`. A
broker starts without codecs, regular expressions and handlers that it has not needed yet.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package, from the modules of its names."""

    def imported(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(home), name)
        setattr(sys.modules[package], name, found)
        return found

    return imported


class LazyModule:
    """Stands for a module until an attribute of it is asked for; any thread may ask.

    Python's own `LazyLoader` imports twice where two threads ask at once.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(import_module(self._name), attribute)
        setattr(self, attribute, found)
        return found
