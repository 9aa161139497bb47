"""Lets a package export what is imported only when it is first asked for.

So a client needs no broker, a tool no settings of brokers, and whoever blocks no event loop, though
one import statement offers them all. The type checker reads the same names under `TYPE_CHECKING`.
"""

import sys
from collections.abc import Callable, Mapping


def exports(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package, from the modules where its names are at home."""

    def imported(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module(home), name)
        setattr(sys.modules[package], name, found)
        return found

    return imported
