"""Regular expressions that clients choose: what is taken, and what is said of the rest."""

import shutil
import subprocess

import pytest

from odradek import expressions
from odradek._lazy import LazyModule
from odradek.config.client_metrics import check_client_metrics, parse_match
from odradek.config.definition import ConfigError
from odradek.coordinator.regular_expressions import matching_names
from odradek.errors import BrokerError, ErrorCode
from odradek.expressions import (
    ExpressionError,
    UnreadableExpression,
    compiled,
    java_pattern,
    splitter,
)


def test_the_whole_text_matches():
    """A subscription for `test` would hold for `contest`."""
    match = compiled("te.t|best")
    assert match("test") is not None
    assert match("contest") is None
    assert match("tests") is None
    assert compiled(r"a\{99999999999}")("a{99999999999}") is not None


@pytest.mark.parametrize("expression", ["(", "a**", r"(a)\1", "(?=a)", "((a{100}){100}){100}"])
def test_what_cannot_be_matched_in_linear_time_is_refused(expression):
    """One expression could hold up the broker, or take its memory."""
    with pytest.raises(ExpressionError, match=r"\w"):
        compiled(expression)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        *((each, f"Illegal client matching pattern: client_id={each}") for each in ("(", "a**")),
        ("[a-z&&[^x]]", "[a-z&&[^x]] cannot be matched here: RE2 has no intersections"),
        ("(?!a).*", "(?!a).* cannot be matched here: RE2 has no look-around"),
    ],
)
def test_clients_of_a_subscription_are_chosen_by_a_pattern_of_javas(pattern, reason):
    """RE2 read a pattern that Kafka takes otherwise, and other clients pushed."""
    with pytest.raises(ConfigError) as refused:
        check_client_metrics({"match": f"client_id={pattern}"})
    assert refused.value.reason.startswith(reason)
    fits = parse_match(r"client_id=\p{Lower}+")["client_id"]
    assert fits("shop") is not None
    assert fits("Shop") is None


@pytest.mark.parametrize("expression", ["a{99999999999}", r"a\\{99999999999,}", "a{1,99999999999}"])
def test_a_repetition_by_a_huge_number_is_refused(expression):
    """RE2 takes it for letters: a group would read nothing, and nobody is told why."""
    with pytest.raises(ExpressionError, match="invalid repetition size"):
        compiled(expression)


def test_without_re2_everybody_is_told(monkeypatch):
    """A subscription is answered with an unknown server error, and the log has a traceback."""
    monkeypatch.setattr(expressions, "re2", LazyModule("no_such_re2"))
    with pytest.raises(ConfigError, match="google-re2 cannot be imported"):
        check_client_metrics({"match": "client_id=not-asked-for-before"})
    with pytest.raises(BrokerError, match="cannot be matched: google-re2") as of_group:
        matching_names("not-asked-for-before", ["a"])
    assert of_group.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"team-\p{Lower}+", "team-a", "team-A"),
        (r"[\p{Upper}\P{Alpha}]+", "A-1", "a"),
        (r"\P{Digit}", "a", "1"),
        (r"\p{Lu}", "A", "a"),
        (r"\Qa.b\E.*", "a.bc", "axbc"),
        (r"\Qa.b", "a.b", "axb"),
        (r"[\Q]-[\E]+", "[-]", "a"),
        (r"(?<team>a|b)-c", "b-c", "c-c"),
        (r"(?i:orders)", "ORDERS", "order"),
        (r"a\_b\u002D\x2d", "a_b--", "a_b"),
        (r"\s[\s]", "\x0b\x0b", "aa"),
        (r"\S[^\S]", "a\x0b", "\x0ba"),
        (r"[]a]+", "a]", "b"),
        (r"[^]a]+", "b", "]"),
        (r"[(?]{2}", "(?", "?"),
        (r"[*+{]\[&&\]", "{[&&]", "a[&&]"),
        (r"(?<a>x)[(?<a>]+(?<A>y)", "x(?<y", "xy"),
    ],
)
def test_a_pattern_of_javas_is_read_as_java_reads_it(pattern, fits, does_not):
    """A subscription by a pattern that is right in Kafka's own client was refused."""
    match = java_pattern(pattern)
    assert match(fits) is not None
    assert match(does_not) is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("team-[a-z&&[^x]]", "intersections"),
        ("team-[a-d[m-p]]", "classes of characters within"),
        ("[[:alpha:]]", "classes of characters within"),
        ("(?!internal).*", "look-around"),
        ("a(?<=a)", "look-around"),
        ("(?>a)b", "atomic"),
        ("a*+", "possessive"),
        ("a{2}+", "possessive"),
        (r"(a)\1", "back references"),
        (r"\R", r"no \\R"),
        (r"\v", r"no \\v"),
        (r"\p{javaLowerCase}", r"no \\p\{javaLowerCase\}"),
        ("(?U)a", "flags"),
        ("(?ix)a b", "flags"),
        ("ab(?i){2}", "before flags"),
        ("(?m)a", "ends of lines"),
        ("a$.", "within a pattern"),
        ("(a$)b", "within a pattern"),
        (r"(a$|b)\n", "within a pattern"),
        ("((a$)|b)*", "within a pattern"),
        *((f"(?i){each}", "ignores the case") for each in ("ä", r"\u00e4", r"\xe4", r"\x{e4}")),
        *((f"(?i){each}", "ignores the case") for each in (r"\p{Lu}", r"\pL", r"[\p{Lower}]")),
        ("a{1001}", "repetition size"),
        ("a?{2}", "repetition operator"),
        (r"\p{L}{1000}\p{L}{1000}", "too large"),
    ],
)
def test_what_re2_would_read_otherwise_is_refused(pattern, reason):
    """It matched nothing, or something else, in silence."""
    with pytest.raises(UnreadableExpression, match=reason):
        java_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        *(("(", "missing"), ("*", "repetition"), ("a{", "repetition"), ("a{,3}", "repetition")),
        *(("(?P<n>a)", "begins with"), ("[a", "missing"), ("a**", "repetition")),
        *((rf"\p{{{name}}}", "Java has no") for name in ("Greek", "Yi", "Any", "^Lu")),
        *((r"[\p{Greek}]", "Java has no"), (r"\P{Greek}", "Java has no")),
        ("(?<a>x)(?<b>y)|(?<a>z)", "several groups are named a"),
        *((f"(?<{name}>x)", "name of a group") for name in ("", "1a", "a_b", "ä")),
    ],
)
def test_what_is_no_pattern_for_java_is_none_here(pattern, reason):
    """A pattern that worked here was refused by everybody else's client."""
    with pytest.raises(ExpressionError, match=reason) as refused:
        java_pattern(pattern)
    assert type(refused.value) is ExpressionError


def test_a_separator_has_no_end_of_the_text():
    """Java would split before a last line's end."""
    with pytest.raises(UnreadableExpression, match=r"\$ in a separator"):
        splitter(",|a$")


@pytest.mark.parametrize("name", ["L", "Lu", "M", "Nd", "P", "Pi", "S", "Sm", "Z", "Zs", "C", "Cs"])
def test_categories_of_characters_are_taken(name):
    """A pattern that is right in Kafka's own client was refused, as a script's name is."""
    assert java_pattern(rf"\p{{{name}}}|\P{{{name}}}")("a") is not None


# A character of each kind that Java and RE2 read in two ways.
TEXTS = list("aAbkKsSzZ_1-.$ \n\r\t\x0b\x85\u2028\u2029\u212a\u017f\u1e00\u00dfäÄ")
TEXTS += [f"a{each}b" for each in TEXTS] + [f"a{each}" for each in TEXTS]
PATTERNS = (
    *(".", "a.b", "a.*", "(?s).", "(?s)a.b", "(?s:a.)b", "(?s:a.).", "((?s)a.)|.", "(?-s).", "[.]"),
    *(
        "(?s)(?-s:.)a",
        "a(?<n>.)b",
        r"\.",
        r"a\Q.\Eb",
        "^a$|b$",
        "(a$)",
        "((a$)|b)|k",
        "(?:.|\r)*",
        "a$$",
        "[a$]",
    ),
    *(
        "(?i)k",
        "(?i)s",
        "(?i)[a-z]",
        "(?i)[^k]",
        "(?i:a)s",
        r"(?i)\w",
        r"(?i)\W",
        "(?i)[J-L]",
        "(?i).",
    ),
    *(
        r"(?i)\p{Alpha}",
        r"(?i)\x6b",
        r"(?i)\u0073",
        "(?is)a.b",
        "[^a]",
        r"\w",
        r"\s",
        r"\S",
        "(?i)[Z-a]",
    ),
    *(
        r"(?i)\p{Punct}",
        r"(?i)\P{Alpha}",
        r"(?i)[^\w]",
        r"(?i)\d",
        r"(?i)a\sb",
        "(?-i)k",
        r"\p{Lu}",
        "ä",
    ),
)
JAVA = """
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.regex.Pattern;
class Oracle {
    public static void main(String[] words) {
        for (String pattern : words[0].split(" ")) {
            StringBuilder answers = new StringBuilder();
            for (String text : words[1].split(" "))
                answers.append(Pattern.matches(decoded(pattern), decoded(text)) ? '1' : '0');
            System.out.println(answers);
        }
    }
    static String decoded(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }
}
"""


@pytest.mark.slow
def test_patterns_match_what_they_match_in_java(tmp_path):
    """A dot took a carriage return for a letter, and the sign for kelvin was a k."""
    java = shutil.which("java")
    if java is None:
        pytest.skip("there is no Java")
    source = tmp_path / "Oracle.java"
    source.write_text(JAVA, encoding="utf-8")
    words = [" ".join(each.encode().hex() for each in some) for some in (PATTERNS, TEXTS)]
    command = [java, str(source), *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    answers = dict(zip(PATTERNS, told, strict=True))
    read = {each: java_pattern(each) for each in PATTERNS}
    ours = {
        pattern: "".join("01"[match(text) is not None] for text in TEXTS)
        for pattern, match in read.items()
    }
    assert ours == answers


@pytest.mark.parametrize("text", ["a\r", "a\x85", "a\u2028", "a\u2029"])
def test_a_dot_is_no_end_of_a_line(text):
    """As in Java, of which a test asks a real one."""
    assert java_pattern("a.")(text) is None
    assert java_pattern("(?s)a.")(text) is not None
    assert java_pattern("(?i)ask")("a\u017f\u212a") is None
    assert splitter("(?i)k")("1K2\u212a3k4".encode()) == [b"1", "2\u212a3".encode(), b"4"]
