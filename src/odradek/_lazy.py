"""Lets a package export what is imported only when it is first asked for, and a module use another
that is imported only when it is first used.

So a client imports no broker, a tool no broker settings and blocking code no event loop, though one
import statement offers them all. The type checker reads the same names under `TYPE_CHECKING`. A
broker starts without codecs, regular expressions and handlers that nobody has asked it for.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package, from the modules where its names are at home."""

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
