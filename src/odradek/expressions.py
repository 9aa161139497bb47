"""Regular expressions that clients choose, in the syntax of RE2.

They are matched on the event loop against whatever there is, so they must not be able to take long:
RE2 matches in linear time and knows no look-around and no back references. Expressions that only
Java accepts are refused, and so are expressions that need too much memory.

Patterns of Java's, in which clients and tools of Kafka's name topics, are read by RE2 too: as Java
reads them, or not at all (`java_pattern`).

Every installation has the package `google-re2`; where it cannot be imported, expressions are
refused with that reason. Python's own `re` is no substitute: `(a+)+$` holds it up for ever.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from odradek._lazy import LazyModule

MAX_PROGRAM_BYTES: Final = 1 << 20
"""The memory that a compiled expression may need; `((a{100}){100}){100}` is refused."""

# Tokens that differ between Java and RE2, or need a check; all other text is the same in both.
_TOKEN: Final = re.compile(
    r"""(?P<quoted>\\Q.*?(?:\\E|\Z))
    | (?P<property>\\(?:[pP]|x)\{[^}]*\})
    | (?P<space>\\[sS])
    | (?P<code>\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2})
    | (?P<escaped>\\.)
    | (?P<any>\.)
    | (?P<end>\$)
    | (?P<open>\[\^?\]?)
    | (?P<close>\])
    | (?P<both>&&)
    | (?P<flags>\(\?[A-Za-z-]+\)[*+?{])
    | (?P<named>\(\?<(?![=!])\w*>?)
    | (?P<group>\(\?(?:<?[=!]|[A-Za-z-]+|>))
    | (?P<brace>\{(?:\d+(?:,\d*)?\}\+?)?)
    | (?P<possessive>[*+?]\+)
    | (?P<begin>\()
    | (?P<finish>\))""",
    re.DOTALL | re.VERBOSE,
)
# Java's names for characters of ASCII that RE2 has as POSIX's.
_POSIX: Final = frozenset(
    {
        "Lower",
        "Upper",
        "ASCII",
        "Alpha",
        "Digit",
        "Alnum",
        "Punct",
        "Graph",
        "Print",
        "Blank",
        "Cntrl",
        "XDigit",
        "Space",
    }
)
# Its categories of all characters. RE2 calls scripts alike, some by two letters, too.
_CATEGORY: Final = re.compile(r"C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?")
_NAMED: Final = re.compile(r"\(\?<[A-Za-z][A-Za-z0-9]*>")
_ESCAPES: Final = frozenset("dDwWbBAzafnrtxpP")
_FLAGS_OF_JAVA: Final = frozenset("duxU")

# RE2 takes a repetition by a number that no machine word holds for letters; Kafka refuses it.
_HUGE_REPETITION: Final = re.compile(r"(?<!\\)(?:\\\\)*\{(?:\d{9,}(?:,\d*)?|\d+,\d{9,})\}")

# What is wrong with expressions that Java takes.
_OF_RE2_ALONE: Final = re.compile(
    r"invalid repetition size: \{\d+,?\}|.*repetition operator: .*\}|pattern too large.*"
)

_LAST_OF_ASCII: Final = 0x7F
# The two first bits of a byte in the midst of a character in UTF-8.
_FIRST_TWO_BITS: Final = 0b1100_0000
_CONTINUATION: Final = 0b1000_0000

# What ends a line for Java; for RE2 only the first does.
_NO_LINE_END: Final = r"[^\n\r\x{85}\x{2028}\x{2029}]"

# Letters beyond ASCII that RE2 takes for k and s where case is ignored, and others of the same
# category and as many bytes. Java ignores the case of ASCII alone.
_LIKE_ASCII: Final = {"\u212a": "\u1e00", "\u017f": "\u00df"}
_IN_TEXT: Final = str.maketrans(_LIKE_ASCII)
_IN_BYTES: Final = [(each.encode(), other.encode()) for each, other in _LIKE_ASCII.items()]

re2: Any = LazyModule("re2")

Match = Callable[[str], object]
"""None unless the whole text matches."""
Split = Callable[[bytes], list[bytes]]


class ExpressionError(ValueError):
    """Text that is no regular expression, and why."""


class UnreadableExpression(ExpressionError):
    """A pattern that Java can read and RE2 cannot, and why."""


class ExpressionsUnavailable(ExpressionError):
    """Expressions cannot be compiled here; the text says why."""


@lru_cache(maxsize=256)
def compiled(expression: str) -> Match:
    """Compiles an expression.

    Raises:
        ExpressionError: it is none.
        ExpressionsUnavailable: RE2 cannot be imported.
    """
    match: Match = _program(expression).fullmatch
    return match


def splitter(expression: str) -> Split:
    """Compiles a Java pattern for the separator between parts. Empty parts at the end do not count,
    as where Java splits; without a match the text is the only part.

    Raises:
        ExpressionError: as `java_pattern`.
    """
    translated = _InRe2(expression)
    if translated.has_end:
        raise UnreadableExpression("RE2 has no end before the last line's end: $ in a separator")
    program = _program(translated.text)

    def split(text: bytes) -> list[bytes]:
        read = _like_ascii(text) if translated.ignores_case else text
        spans = [each.span() for each in program.finditer(read) if not _is_no_place(each, text)]
        if not spans:
            return [text]
        begins = [0, *(end for _, end in spans)]
        ends = [*(begin for begin, _ in spans), len(text)]
        parts = [text[begin:end] for begin, end in zip(begins, ends, strict=True)]
        while parts and not parts[-1]:
            parts.pop()
        return parts

    return split


def _like_ascii(text: bytes) -> bytes:
    for each, other in _IN_BYTES:
        text = text.replace(each, other)
    return text


def _is_no_place(match: Any, text: bytes) -> bool:
    """Whether an empty match is at a place that cannot be split: at the beginning, or within a
    character."""
    span: tuple[int, int] = match.span()
    begin, end = span
    if begin < end:
        return False
    return begin == 0 or (begin < len(text) and text[begin] & _FIRST_TWO_BITS == _CONTINUATION)


def _program(expression: str) -> Any:
    try:
        options = re2.Options()
    except ImportError as error:
        raise ExpressionsUnavailable(f"google-re2 cannot be imported: {error}") from error
    if _HUGE_REPETITION.search(expression):
        raise ExpressionError("invalid repetition size")
    options.max_mem = MAX_PROGRAM_BYTES
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it cannot be parsed"
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise ExpressionError(text) from error


def java_pattern(expression: str) -> Match:
    """Compiles a pattern of Java's.

    Raises:
        UnreadableExpression: RE2 has nothing for a part of it, or would read that otherwise, or has
            no room for it.
        ExpressionError: it is none.
        ExpressionsUnavailable: RE2 cannot be imported.
    """
    translated = _InRe2(expression)
    try:
        match = compiled(translated.text)
    except ExpressionError as error:
        if _OF_RE2_ALONE.fullmatch(str(error)):
            raise UnreadableExpression(str(error)) from None
        raise
    if translated.ignores_case:
        return lambda text: match(text.translate(_IN_TEXT))
    return match


class _OpenGroup:
    """A group whose end has not come yet. In it a dot `matches_all` characters or no line's end;
    `has_end` says whether a part of it ends with the end of the text."""

    def __init__(self, *, matches_all: bool) -> None:
        self.matches_all = matches_all
        self.has_end = False


class _InRe2:
    """A pattern of Java's in the syntax of RE2: `text`. With `ignores_case` RE2 ignores that of
    `_LIKE_ASCII` as well; `has_end` says whether there is a `$`."""

    def __init__(self, expression: str) -> None:
        self.ignores_case = False
        self._is_in_class = False
        self.has_end = False
        # The first one is the whole pattern.
        self._groups = [_OpenGroup(matches_all=False)]
        self._beyond_ascii: list[str] = []
        parts: list[str] = []
        end = 0
        for token in _TOKEN.finditer(expression):
            parts.append(self._same(expression[end : token.start()]))
            parts.append(self._token(token))
            end = token.end()
        _check_names(parts)
        self.text = "".join([*parts, self._same(expression[end:])])
        if self.ignores_case and self._beyond_ascii:
            raise UnreadableExpression(
                f"RE2 ignores the case of more letters than Java: {self._beyond_ascii[0]}"
            )

    def _same(self, text: str) -> str:
        if not text.isascii():
            self._beyond_ascii.append(text)
        return text

    def _token(self, token: re.Match[str]) -> str:
        kind, text = token.lastgroup, self._same(token[0])
        known = _token_in_re2(token, self._is_in_class)
        if _is_about_case(kind, text):
            self._beyond_ascii.append(text)
        if kind in ("open", "close"):
            self._is_in_class = kind == "open"
        elif not self._is_in_class:
            self._nest(kind, text, token.string[token.end() : token.end() + 1])
            if kind == "any" and not self._groups[-1].matches_all:
                return _NO_LINE_END
        return known

    def _nest(self, kind: str | None, text: str, following: str) -> None:
        """Follows the groups, the flags in them, and the ends of their parts."""
        if kind == "end":
            self._end(following)
        elif kind in ("begin", "named"):
            self._open(matches_all=self._groups[-1].matches_all)
        elif kind == "finish" and len(self._groups) > 1:
            if self._groups.pop().has_end:
                self._end(following)
        elif kind == "group":
            on, _, off = text[2:].partition("-")
            self.ignores_case |= "i" in on
            matches_all = "s" not in off and ("s" in on or self._groups[-1].matches_all)
            if following == ")":  # up to the end of the group around
                self._groups[-1].matches_all = matches_all
            self._open(matches_all=matches_all)

    def _open(self, *, matches_all: bool) -> None:
        self._groups.append(_OpenGroup(matches_all=matches_all))

    def _end(self, following: str) -> None:
        """Refuses a `$` with more behind it, where it may match before the last line's end."""
        if following not in ("", ")", "|", "$"):
            raise UnreadableExpression(
                f"RE2 has no end before the last line's end: $ and {following} within a pattern"
            )
        self.has_end = True
        self._groups[-1].has_end = True


def _is_about_case(kind: str | None, text: str) -> bool:
    """Whether a token has letters beyond ASCII, or letters of one case."""
    if kind == "property":
        return text[1] == "x" or text[3:-1] not in _POSIX - {"Lower", "Upper"}
    if kind == "code":
        return int(text[2:], 16) > _LAST_OF_ASCII
    return kind == "escaped" and text[1] in "pP"


def _check_names(parts: list[str]) -> None:
    # RE2 takes two groups of one name. Only a group becomes a part that begins so.
    groups = [part for part in parts if part.startswith("(?P<")]
    for group in groups:
        if groups.count(group) > 1:
            raise ExpressionError(f"several groups are named {group[4:-1]}")


def _token_in_re2(token: re.Match[str], is_in_class: bool) -> str:
    kind, text = token.lastgroup, token[0]
    if kind in _BOTH_WAYS:
        return _BOTH_WAYS[kind](text, is_in_class)
    if kind in _EVERYWHERE:
        return _EVERYWHERE[kind](text)
    kinds = _WITHIN_CLASSES if is_in_class else _OUTSIDE_CLASSES
    return kinds[kind](text) if kind in kinds else text


def _quoted(text: str) -> str:
    return re.escape(text[2:].removesuffix("\\E"))


def _property(text: str, is_in_class: bool) -> str:
    if text[3:-1] in _POSIX and text[1] != "x":
        return _posix(text[3:-1], text[1] == "P", is_in_class)
    try:
        compiled(text)
    except ExpressionError:
        raise UnreadableExpression(f"RE2 has no {text}") from None
    if text[1] != "x" and not _CATEGORY.fullmatch(text[3:-1]):
        raise ExpressionError(f"Java has no {text}")
    return text


def _space(text: str, is_in_class: bool) -> str:
    # RE2's own is without the vertical tab.
    return _posix("Space", text[1] == "S", is_in_class)


def _posix(name: str, is_negated: bool, is_in_class: bool) -> str:
    known = f"[:{'^' if is_negated else ''}{name.lower()}:]"
    return known if is_in_class else f"[{known}]"


def _escaped(text: str) -> str:
    letter = text[1]
    if letter == "_":
        return letter
    if letter.isdigit():
        raise UnreadableExpression(f"RE2 has no back references, nor numbers as Java's: {text}")
    if letter.isalpha() and letter not in _ESCAPES:
        raise UnreadableExpression(f"RE2 has no {text} as Java has it")
    return text


def _class_within_class(_text: str) -> str:
    raise UnreadableExpression("RE2 has no classes of characters within classes")


def _intersection(text: str) -> str:
    raise UnreadableExpression(f"RE2 has no intersections of classes: {text}")


def _repeated_flags(text: str) -> str:
    raise UnreadableExpression(f"RE2 repeats what stands before flags: {text}")


def _possessive(text: str) -> str:
    raise UnreadableExpression(f"RE2 has no possessive repetitions: {text}")


def _repetition(text: str) -> str:
    if text == "{":
        raise ExpressionError("{ begins no repetition")
    return _possessive(text) if text.endswith("+") else text


def _named_group(text: str) -> str:
    if not _NAMED.fullmatch(text):
        raise ExpressionError(f"{text} has no name of a group: letters and digits, a letter first")
    return f"(?P{text[2:]}"


def _group(text: str) -> str:
    kind = text[2:]
    if kind[-1] in "=!>":
        raise UnreadableExpression(f"RE2 has no look-around and no atomic groups: {text}")
    if not _FLAGS_OF_JAVA.isdisjoint(kind):
        raise UnreadableExpression(f"RE2 has not all of these flags of Java's: {text}")
    if "m" in kind.partition("-")[0]:
        raise UnreadableExpression(f"RE2 has other ends of lines than Java: {text}")
    if kind.startswith("P"):
        raise ExpressionError(f"no group of Java's begins with {text}")
    return text


_Reader = Callable[[str], str]
_BOTH_WAYS: Final[dict[str | None, Callable[[str, bool], str]]] = {
    "property": _property,
    "space": _space,
}
_EVERYWHERE: Final[dict[str | None, _Reader]] = {
    "quoted": _quoted,
    "code": lambda text: f"\\x{{{text[2:]}}}",
    "escaped": _escaped,
}
_WITHIN_CLASSES: Final[dict[str | None, _Reader]] = {
    "open": _class_within_class,
    "both": _intersection,
}
_OUTSIDE_CLASSES: Final[dict[str | None, _Reader]] = {
    "flags": _repeated_flags,
    "named": _named_group,
    "group": _group,
    "brace": _repetition,
    "possessive": _possessive,
}
