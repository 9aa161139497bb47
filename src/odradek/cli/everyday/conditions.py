"""`--where`: selects records.

A condition is a subject, optionally with an operator and a value:

    key=abc  key~^a  value.user.id=42  value.items[*].price>10  header.trace  offset>=7

The subjects are `key`, `value`, `header.NAME`, `partition`, `offset`, `timestamp`; a path behind
`key` or `value` goes into JSON. The operators are = != < <= > >= and ~ !~ (regular expressions).
Without an operator the subject must exist and not be null. One of several values (`[*]`, headers of
one name) must match. Text is compared with text, numbers with numbers; a missing subject is `null`.
"""

import json
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from odradek.cli.everyday.json_paths import parse_json, parse_path, values_at
from odradek.client.core.consuming.consumer_record import ConsumerRecord

Condition = Callable[[ConsumerRecord], bool]
_FORM: Final = re.compile(
    r"(?P<subject>key|value|header|partition|offset|timestamp)"
    r'(?P<path>(?:\.[\w-]+|\["(?:[^"\\]|\\.)*"\]|\[(?:-?\d+|\*)\])*)'
    r"\s*(?:(?P<sign><=|>=|!=|!~|=|<|>|~)\s*(?P<operand>.*))?",
    re.DOTALL,
)
_ORDERINGS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def parse_condition(text: str) -> Condition:
    """Reads a condition.

    Raises:
        ValueError: the text is not a condition.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ValueError(
            f"{text!r} is no condition: key, value, header.NAME, partition, offset or timestamp, "
            "perhaps a JSON path, and = != < <= > >= ~ !~ with what to compare with"
        )
    find = _finder(form["subject"], form["path"])
    matches = _matcher(form["sign"], form["operand"] or "")
    is_negative = form["sign"] in ("!=", "!~")

    def condition(record: ConsumerRecord) -> bool:
        if is_negative:
            return all(map(matches, find(record)))
        return any(map(matches, find(record)))

    return condition


def _finder(subject: str, path: str) -> Callable[[ConsumerRecord], Iterator[Any]]:
    if subject == "header":
        name = path[1:] if path.startswith(".") else path[2:-2]
        if not name:
            raise ValueError("a header needs its name: header.NAME")
        return lambda record: (_text(value) for each, value in record.headers if each == name)
    if subject in ("partition", "offset", "timestamp"):
        if path:
            raise ValueError(f"{subject} is a number and has no path")
        return lambda record: iter((getattr(record, subject),))
    if not path:
        return lambda record: iter((_text(getattr(record, subject)),))
    steps = parse_path(path)

    def find(record: ConsumerRecord) -> Iterator[Any]:
        try:
            document = parse_json(getattr(record, subject) or b"")
        except ValueError:
            return iter(())
        return values_at(document, steps)

    return find


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _matcher(sign: str | None, operand: str) -> Callable[[Any], bool]:
    if sign is None:
        return lambda found: found is not None
    if sign in ("~", "!~"):
        try:
            pattern = re.compile(operand)
        except re.error as error:
            raise ValueError(f"{operand!r} is no regular expression: {error}") from None
        wanted = sign == "~"
        return lambda found: (pattern.search(_shown(found)) is not None) == wanted
    if sign in ("=", "!="):
        wanted = sign == "="
        return lambda found: _equals(found, operand) == wanted
    compare = _ORDERINGS[sign]
    return lambda found: _compares(compare, found, operand)


def _shown(found: Any) -> str:
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)


def _equals(found: Any, operand: str) -> bool:
    if isinstance(found, str):
        return found in (operand, _unquoted(operand))
    try:
        wanted = parse_json(operand)
    except ValueError:
        return False
    # For Python `true` is 1.
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def _unquoted(operand: str) -> str:
    is_quoted = len(operand) >= 2 and operand[0] == operand[-1] == '"'
    return operand[1:-1] if is_quoted else operand


def _compares(compare: Callable[[Any, Any], bool], found: Any, operand: str) -> bool:
    if isinstance(found, bool) or found is None or isinstance(found, list | dict):
        return False
    try:
        return compare(float(found), float(operand))
    except ValueError:
        return isinstance(found, str) and compare(found, _unquoted(operand))
