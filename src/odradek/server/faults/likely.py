"""A name that has to be one of some, and a hint at the likely one where it is not."""

from collections.abc import Iterable

from odradek.config.likely_names import likely_name


def chosen(what: str, name: str, names: Iterable[str]) -> str:
    """The name, if it is one of the names.

    Raises:
        ValueError: it is not.
    """
    known = list(names)
    if name in known:
        return name
    likely = likely_name(name, known)
    hint = "" if likely is None else f" (did you mean {likely}?)"
    raise ValueError(f"there is no {what} called {name!r}{hint}")
