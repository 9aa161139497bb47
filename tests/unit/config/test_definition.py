"""Values are parsed by Kafka's rules; a file that Kafka accepts must mean the same here."""

import pytest

from odradek.config import ConfigError, Setting, SettingType, Value


def _setting(type: SettingType, **bounds: object) -> Setting:
    return Setting("some.name", type, None, "A setting.", **bounds)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (SettingType.BOOLEAN, " True ", True),
        (SettingType.BOOLEAN, "false", False),
        (SettingType.INT, " +12 ", 12),
        (SettingType.INT, "-2147483648", -2147483648),
        (SettingType.SHORT, "32767", 32767),
        (SettingType.LONG, "9223372036854775807", (1 << 63) - 1),
        (SettingType.DOUBLE, "1e3", 1000.0),
        (SettingType.DOUBLE, ".5", 0.5),
        (SettingType.STRING, "  a b ", "a b"),
        (SettingType.LIST, " a , b,c ", ("a", "b", "c")),
        (SettingType.LIST, "  ", ()),
        (SettingType.PASSWORD, " s ", "s"),
    ],
)
def test_parses(type: SettingType, text: str, value: Value) -> None:
    """Blanks do not count; numbers are decimal."""
    assert _setting(type).parse(text) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (SettingType.BOOLEAN, "yes"),
        (SettingType.INT, "1_000"),
        (SettingType.INT, "٣"),
        (SettingType.INT, "2147483648"),
        (SettingType.INT, "1" * 5000),
        (SettingType.SHORT, "32768"),
        (SettingType.LONG, "9223372036854775808"),
        (SettingType.LONG, ""),
        (SettingType.DOUBLE, "nan"),
        (SettingType.DOUBLE, "1_0.0"),
    ],
)
def test_refuses(type: SettingType, text: str) -> None:
    """What Python would take for a number but Kafka would not is refused."""
    with pytest.raises(ConfigError) as caught:
        _setting(type).parse(text)
    assert caught.value.name == "some.name"


def test_bounds_and_the_extra_value() -> None:
    """compression.gzip.level is 1 to 9 or -1, and nothing between."""
    level = _setting(SettingType.INT, at_least=1, at_most=9, also=-1)
    assert [level.parse(text) for text in ("-1", "1", "9")] == [-1, 1, 9]
    for text in ("0", "10", "-2"):
        with pytest.raises(ConfigError):
            level.parse(text)
    assert level.valid_values == "[1,...,9] or -1"


def test_choices_hold_for_every_element_of_a_list() -> None:
    """cleanup.policy=delete,compat must not pass."""
    policy = _setting(SettingType.LIST, choices=("compact", "delete"))
    assert policy.parse("compact,delete") == ("compact", "delete")
    with pytest.raises(ConfigError, match="must be one of"):
        policy.parse("delete,compat")


def test_password_never_shows_in_errors() -> None:
    """An error goes to the log and to the client."""
    secret = _setting(SettingType.PASSWORD, pattern="x+")
    with pytest.raises(ConfigError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)
