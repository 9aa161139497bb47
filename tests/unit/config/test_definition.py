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
    """Text that Python would take for a number but Kafka would not is refused."""
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


@pytest.mark.parametrize("type", [SettingType.STRING, SettingType.LIST, SettingType.CLASS])
@pytest.mark.parametrize(("text", "shown"), [("/x\0y", "/x\\u0000y"), ("a\ud83d", "a\\ud83d")])
def test_what_no_path_and_no_message_can_have_is_refused(
    type: SettingType, text: str, shown: str
) -> None:
    """A broker would end with a traceback where a directory is made, or a client where it says its
    name."""
    with pytest.raises(ConfigError, match="Invalid value ") as caught:
        _setting(type).parse(text)
    assert str(caught.value).split()[2] == shown


def test_a_value_is_trimmed_as_by_java() -> None:
    """All that is not above a blank goes, and a blank of another kind is a part of the value."""
    assert _setting(SettingType.STRING).parse("\0\x1f a\u00a0\0") == "a\u00a0"


@pytest.mark.parametrize("text", [",", "a,,b", "a,"])
def test_no_element_of_a_list_is_empty(text: str) -> None:
    """A directory of log.dirs would be the one where the broker was begun."""
    with pytest.raises(ConfigError, match="No element may be empty"):
        _setting(SettingType.LIST).parse(text)


def test_a_list_may_have_to_have_elements() -> None:
    """An empty log.dirs would be the default of another setting."""
    directories = _setting(SettingType.LIST, at_least=1)
    assert directories.parse("a") == ("a",)
    with pytest.raises(ConfigError, match="There must be at least one element"):
        directories.parse(" ")
    assert directories.valid_values == "any non-empty list"


def test_password_never_shows_in_errors() -> None:
    """An error goes to the log and to the client."""
    secret = _setting(SettingType.PASSWORD, pattern="x+")
    with pytest.raises(ConfigError) as caught:
        secret.parse("hunter2")
    assert "hunter2" not in str(caught.value)
