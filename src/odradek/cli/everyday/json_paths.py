"""JSON, and paths into it: `.user.id`, `.items[0]`, `.items[*].price`, `["a name"]`."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_STEP: Final = re.compile(r'\.([A-Za-z_][\w-]*)|\[(-?\d+)\]|\[(\*)\]|\["((?:[^"\\]|\\.)*)"\]')
Path = tuple[str | int | None, ...]


def parse_json(text: str | bytes) -> Any:
    """Parses a document from outside.

    Raises:
        ValueError: the text is not JSON, or is nested too deeply to read.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("this is JSON nested more deeply than can be read") from None


def parse_path(text: str) -> Path:
    """Returns the steps of a path: names, indexes, None for every element.

    Raises:
        ValueError: the text is not a path.
    """
    steps: list[str | int | None] = []
    position = 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise ValueError(f'{text!r} is no JSON path: .name, [0], [*] or ["a name"], repeated')
        name, index, every, quoted = step.groups()
        if every:
            steps.append(None)
        elif index is not None:
            steps.append(int(index))
        else:
            steps.append(name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        position = step.end()
    return tuple(steps)


def values_at(document: Any, path: Path) -> Iterator[Any]:
    """Finds the values at the path: none, one, or several where it covers every element."""
    if not path:
        yield document
        return
    step, rest = path[0], path[1:]
    if step is None:
        for each in document if isinstance(document, list) else ():
            yield from values_at(each, rest)
    elif isinstance(step, int):
        if isinstance(document, list) and -len(document) <= step < len(document):
            yield from values_at(document[step], rest)
    elif isinstance(document, dict) and step in document:
        yield from values_at(document[step], rest)
