"""The parts of kio that are needed, imported without hypothesis, which takes longer than all the
rest.

kio registers its types with hypothesis wherever that is installed, and that leaves a folder
`.hypothesis` where a command was called. It is installed where brokers and tools are started
again and again: in test environments. kio looks for it in one module; that one is imported here
first, with hypothesis out of sight unless it is loaded anyway.
"""

import sys
from importlib import import_module
from typing import Final

HYPOTHESIS: Final = "hypothesis"
LOOKS_FOR_IT: Final = "kio.static._phantom"


def _import_without_hypothesis() -> None:
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


_import_without_hypothesis()

from kio.index import load_request_schema, load_response_schema  # noqa: E402
from kio.schema.errors import ErrorCode as KioErrorCode  # noqa: E402
from kio.schema.index import api_key_map, schema_name_map  # noqa: E402

__all__ = [
    "KioErrorCode",
    "api_key_map",
    "load_request_schema",
    "load_response_schema",
    "schema_name_map",
]
