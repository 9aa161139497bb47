"""`ssl.principal.mapping.rules`: maps a certificate's subject to a user.

    RULE:^CN=(.*?),.*$/$1/L,DEFAULT

The first rule that matches the whole subject makes the name; `/L` and `/U` turn it into lower and
upper case, `DEFAULT` takes the subject as it is. If none matches, the connection is refused.
"""

import re
from typing import Any, Final, NamedTuple

from odradek.expressions import ExpressionError, Match, java_pattern

_DEFAULT: Final = "DEFAULT"
# Rules are separated by commas, which patterns have too: what follows tells them apart.
_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
)
_REFERENCE: Final = re.compile(r"\$([0-9])|\\(.)")


class MappingRule(NamedTuple):
    """One rule; without a pattern the default."""

    pattern: Match | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The name that it makes; None where it does not match."""
        if self.pattern is None:
            return subject
        match: Any = self.pattern(subject)
        if match is None:
            return None
        name = _REFERENCE.sub(lambda each: _referred(each, match), self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


def parse_mapping_rules(text: str) -> list[MappingRule]:
    """Reads the setting.

    Raises:
        ValueError: a rule is malformed.
    """
    rules: list[MappingRule] = []
    left = text.strip()
    while left:
        if left.startswith(_DEFAULT):
            rules.append(MappingRule())
            left = left[len(_DEFAULT) :]
        else:
            match = _RULE.match(left)
            if match is None:
                raise ValueError(f"Invalid rule: `{left}`")
            rules.append(_rule(match))
            left = left[match.end() :]
        left = left.strip()
        if left and not left.startswith(","):
            raise ValueError(f"Invalid rule: `{left}`")
        left = left.removeprefix(",").strip()
    return rules or [MappingRule()]


def mapped_name(rules: list[MappingRule], subject: str) -> str | None:
    """The name of the first rule that matches; None where none does."""
    return next((name for rule in rules if (name := rule.apply(subject)) is not None), None)


def _rule(match: re.Match[str]) -> MappingRule:
    try:
        pattern = java_pattern(match["pattern"])
    except ExpressionError as error:
        raise ValueError(f"Invalid rule: `{match[0]}`: {error}") from None
    return MappingRule(pattern, match["replacement"], match["case"])


def _referred(reference: re.Match[str], match: Any) -> str:
    if reference[1] is None:
        return reference[2]
    number = int(reference[1])
    if number > (match.re.groups or 0):
        return reference[0]  # as it stands
    return match[number] or ""
