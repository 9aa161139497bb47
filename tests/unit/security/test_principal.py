"""If one of these fails, a super user or an access rule names somebody else than it should."""

import pytest

from odradek.security.principal import ANONYMOUS, parse_principal, user


def test_a_principal_is_read_and_printed_as_kafka_does():
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert parse_principal("User:alice") == user("alice")
    assert str(parse_principal("Group:a:b")) == "Group:a:b"
    assert parse_principal("User:") == user("")


@pytest.mark.parametrize("text", ["", "alice"])
def test_a_principal_without_a_type_is_refused(text):
    with pytest.raises(ValueError, match="format principalType:principalName but got"):
        parse_principal(text)
