"""Any text may be given for any setting: it is understood or refused, and nothing else."""

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from odradek.config import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerConfig,
    ConfigError,
    Setting,
    parse_properties,
)

_ROWS = st.sampled_from([*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()])
_NUMBERS = st.integers().map(str) | st.floats().map(str)
_TEXTS = st.text() | _NUMBERS | st.sampled_from(["true", "", "[", "PLAINTEXT://[::1]:0"])


@given(_ROWS, _TEXTS)
def test_a_value_parses_or_is_refused_and_renders_back(row: Setting, text: str) -> None:
    """A parsed value written to a file again must mean the same."""
    try:
        value = row.parse(text)
    except ConfigError:
        return
    rendered = row.render(value)
    assert rendered is not None
    assert row.parse(rendered) == value


@given(st.dictionaries(st.sampled_from(sorted(BROKER_SETTINGS)) | st.text(), _TEXTS, max_size=4))
def test_a_broker_starts_or_names_the_setting(properties: dict[str, str]) -> None:
    """No file makes the start fail in any other way."""
    try:
        config = BrokerConfig(properties)
    except ConfigError:
        return
    assert set(config.unknown) | (set(properties) & set(BROKER_SETTINGS)) >= {
        name for name in properties if not name.startswith("listener.name.")
    }


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in text)


_PLAIN = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=("Cs",)))


@given(st.dictionaries(_PLAIN.filter(bool), _PLAIN))
def test_fully_escaped_properties_come_back(settings: dict[str, str]) -> None:
    """Every character can be written as an escape."""
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in settings.items())
    assert parse_properties(text) == settings


@given(st.text())
def test_any_properties_text_is_read_or_refused(text: str) -> None:
    """A file of garbage is no crash."""
    with contextlib.suppress(ConfigError):
        parse_properties(text)
