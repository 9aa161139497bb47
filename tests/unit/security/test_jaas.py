"""If one of these fails, users whom a file names cannot log in, or a secret is shown."""

import pytest

from odradek.security.jaas import jaas_text, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LINE = r"""
    required username="admin"
    password = admin-secret user_alice="s;e=c\"ret";
"""


def test_a_line_as_kafkas_documentation_has_it():
    line = parse_jaas(PLAIN + LINE)
    assert line.module == PLAIN
    assert line.options["password"] == "admin-secret"
    assert line.users == {"alice": 's;e=c"ret'}
    assert "secret" not in repr(line)


def test_a_line_without_options():
    assert parse_jaas(f"{PLAIN} required;").options == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN,
        f"{PLAIN} required",
        f"{PLAIN} hidden;",
        f"{PLAIN} required hidden;",
        f"{PLAIN} required a=;",
        f'{PLAIN} required password="hidden;',
        f"{PLAIN} required a:hidden b;",
    ],
)
def test_what_is_none_is_refused_without_showing_it(text):
    with pytest.raises(ValueError) as caught:
        parse_jaas(text)
    assert "hidden" not in str(caught.value)


def test_what_is_written_is_read():
    options = {"username": "a", "password": 'p"\\\\;= ', 'user_Ālice,=" ': "="}
    assert parse_jaas(jaas_text("SCRAM-SHA-512", options)).options == options
