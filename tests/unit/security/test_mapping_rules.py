"""If one of these fails, a certificate makes somebody else known than it should."""

import pytest

from odradek.security.mapping_rules import mapped_name, parse_mapping_rules

SUBJECT = "CN=Alice,OU=a/b,O=Co"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", SUBJECT),
        ("", SUBJECT),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/", "Alice@a/b"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "ALICE"),
        ("RULE:^CN=Bob,.*$/bob/, RULE:CN=(.*?),OU=(.{1,3}),O=.*/$2/ ,DEFAULT", "a/b"),
        ("RULE:CN=Alice/never/,DEFAULT", SUBJECT),
        ("RULE:CN=(.*?),.*/$1-$7/", "Alice-$7"),
        ("RULE:CN=Bob/bob/", None),
        (r"RULE:CN=(?<name>\p{Upper}\p{Lower}+),.*/$1/", "Alice"),
    ],
)
def test_the_first_rule_that_matches_all_of_it_makes_the_name(rules, name):
    assert mapped_name(parse_mapping_rules(rules), SUBJECT) == name


@pytest.mark.parametrize(
    "rules", ["default", "RULE:a/b", "RULE:a/b/X", "DEFAULTS", "RULE:(/b/", "RULE:[a-z&&[^x]]/b/"]
)
def test_a_malformed_rule_is_refused(rules):
    with pytest.raises(ValueError, match="Invalid rule"):
        parse_mapping_rules(rules)
