"""Builds the hot modules with mypyc, from the same sources that also run uncompiled.

Without mypy or a C compiler the package installs all the same, slower, and says so once.
"""

import os
import sys

from setuptools import setup

NATIVE_MODULES: list[str] = []


def native_extensions() -> list[object]:
    """The compiled modules, or none where they were not wanted or mypyc is missing."""
    if os.environ.get("ODRADEK_PURE", "0") not in ("", "0"):
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("odradek: mypyc is missing, installing without compiled modules", file=sys.stderr)
        return []
    return list(mypycify(["--strict", *NATIVE_MODULES], opt_level="3", debug_level="0"))


setup(ext_modules=native_extensions() if NATIVE_MODULES else [])
