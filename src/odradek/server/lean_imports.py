"""Keeps kio from importing hypothesis, which takes longer than everything else of a start.

kio registers its types with hypothesis wherever that is installed, which is where brokers
are started again and again: in test environments. It looks for it in one module; that one is
imported here first, with hypothesis out of sight unless it is loaded anyway.
"""

import sys
from importlib import import_module
from typing import Final

HYPOTHESIS: Final = "hypothesis"
LOOKS_FOR_IT: Final = "kio.static._phantom"


def import_without_hypothesis() -> None:
    """Imports the part of kio that looks for hypothesis, so that it finds none."""
    if HYPOTHESIS in sys.modules or LOOKS_FOR_IT in sys.modules:
        return
    sys.modules[HYPOTHESIS] = None  # type: ignore[assignment] # how the import system says "no"
    try:
        import_module(LOOKS_FOR_IT)
    except ModuleNotFoundError:
        return  # another version of kio looks elsewhere; it is only slower
    finally:
        del sys.modules[HYPOTHESIS]
