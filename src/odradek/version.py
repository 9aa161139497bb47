"""The version of this package, for whoever tells it to somebody: no import comes with it."""

from typing import Final

VERSION: Final = "0.1.0"
