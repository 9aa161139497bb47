"""Builds the hot modules with mypyc, from the same sources that also run uncompiled.

Without mypy or a C compiler the package installs all the same, slower, and says so once.
`python setup.py --print-native` lists the sources of the compiled modules.
"""

import os
import shutil
import sys

from setuptools import setup
from setuptools.command.build_ext import build_ext

NATIVE_MODULES: list[str] = []


class OptionalBuildExt(build_ext):
    """Goes on without compiled modules when the compiler fails."""

    def run(self) -> None:
        """Compiles, or says once that the package will run uncompiled."""
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever a compiler can do wrong
            uncompiled(f"the compiler failed: {error}")
            self.extensions = []


def uncompiled(reason: str) -> None:
    """Says, once, that the installation is the slow one."""
    print(f"odradek: installing without compiled modules, slower: {reason}", file=sys.stderr)


def native_extensions() -> list[object]:
    """The compiled modules, or none where they are not wanted or cannot be made."""
    if os.environ.get("ODRADEK_PURE", "0") not in ("", "0"):
        return []
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        uncompiled("there is no C compiler here")
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        uncompiled("mypyc is missing")
        return []
    return list(mypycify(["--strict", *NATIVE_MODULES], opt_level="3", debug_level="0"))


if __name__ == "__main__":
    if sys.argv[1:] == ["--print-native"]:
        print("\n".join(NATIVE_MODULES))
    else:
        extensions = native_extensions() if NATIVE_MODULES else []
        setup(ext_modules=extensions, cmdclass={"build_ext": OptionalBuildExt})
