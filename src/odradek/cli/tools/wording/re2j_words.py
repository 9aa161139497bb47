"""Explains what is wrong with a regular expression of a subscription, in the words of RE2/J, which
Kafka's brokers parse them with."""

import re
from typing import Final

import re2

_WORDS: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
}


def fault_of(expression: str) -> str | None:
    """Explains what is wrong with an expression; None if it is valid."""
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(expression, options)
    except re2.error as error:
        said = error.args[0] if error.args else b"it cannot be parsed"
        text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
        fault = re.sub(r":.*", "", text, flags=re.DOTALL) if ": " in text else text
        return _WORDS.get(fault, fault)
    return None
