"""The parts of kio that are needed, imported without hypothesis, which takes longer than all the
rest.

kio registers its types with hypothesis wherever that is installed, and that leaves a folder
`.hypothesis` where a command was called. It is installed where brokers and tools are started
again and again: in test environments. kio looks for it in one module; that one is imported here
first, with hypothesis out of sight unless it is loaded anyway.

One class of kio's derives from `datetime`, which libraries that freeze time in tests replace by a
class with a metaclass of its own; from that kio's cannot derive. Its module is imported over the
real one: a test that freezes time may be the first to use a broker.
"""

import datetime
import sys
from importlib import import_module
from typing import Any, Final

HYPOTHESIS: Final = "hypothesis"
LOOKS_FOR_IT: Final = "kio.static._phantom"
DERIVES_FROM_DATETIME: Final = "kio.static.primitive"


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


def _import_over_the_true_datetime() -> None:
    """Imports the part of kio that derives from `datetime`, even if a library has replaced that."""
    replaced = datetime.datetime
    true: Any = next(one for one in replaced.__mro__ if type(one) is type)
    datetime.datetime = true  # type: ignore[misc]
    try:
        import_module(DERIVES_FROM_DATETIME)
    except ModuleNotFoundError:
        return  # another version of kio derives elsewhere
    finally:
        datetime.datetime = replaced  # type: ignore[misc]


_import_without_hypothesis()
_import_over_the_true_datetime()

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
