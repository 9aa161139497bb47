"""The version of this package, for all code that reports it: this module imports nothing."""

from typing import Final

VERSION: Final = "0.1.0"
