"""No setting of security is ignored in silence: each is served, refused, or told to do nothing.

If these fail, a suite believes that it tests access rules, or a file protects nothing.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import odradek
from odradek.config import BROKER_SETTINGS, ConfigError
from odradek.config.definition import SettingType
from odradek.config.tables.security import AUTHORIZER_CLASSES, SECURITY_SETTINGS

SOURCES = Path(odradek.__file__).parent
PROTECTING = re.compile(
    r"ssl\.|sasl\.|zookeeper\.(ssl|sasl|set)\.|security\.|delegation\.|connections\.max\.reauth\.ms$"
    r"|connection\.failed\.authentication\."
)
NAMES = sorted(
    {row.name for row in SECURITY_SETTINGS} | {*filter(PROTECTING.match, BROKER_SETTINGS)}
)
# What counts with nothing else: an authorizer decides of connections without a login, too, and
# with a key the broker says why it gives them no tokens.
SERVED_ALONE = {"authorizer.class.name", "delegation.token.secret.key"}
# Brokers of a cluster look first for a listener on which they can meet.
REFUSED_BY_ANOTHER = {"security.inter.broker.protocol"}
REFUSAL = re.compile("protects nothing|: without |a Java class|which does not exist: name")
SPECIAL = {
    "super.users": "User:a",
    "security.inter.broker.protocol": "SSL",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "ssl.enabled.protocols": "TLSv1.2",
}
NUMBERS = {SettingType.SHORT, SettingType.INT, SettingType.LONG, SettingType.DOUBLE}
LISTENERS = {"listeners": ["SASL_SSL://127.0.0.1:0", "SSL://127.0.0.1:0"]}
ALL_THERE = {
    "authorizer.class.name": AUTHORIZER_CLASSES[0],
    "delegation.token.secret.key": "key",
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://127.0.0.1/keys",
    "zookeeper.connect": "127.0.0.1:2181",
    "zookeeper.ssl.client.enable": "true",
    "security.inter.broker.protocol": "SASL_SSL",
}


def other_value(name: str) -> str:
    """A legal value that is not the default."""
    row = BROKER_SETTINGS[name]
    if name in SPECIAL or row.choices:
        return SPECIAL.get(name) or next(each for each in row.choices if each != row.default)
    if row.type is SettingType.BOOLEAN:
        return "false" if row.default else "true"
    if row.type in NUMBERS:
        return str(row.at_most if row.at_most not in (None, row.default) else 7)
    return "x"


def refusal(make: Callable[[], object]) -> ConfigError | None:
    """Why a broker is refused; None if it is not."""
    try:
        make()
    except ConfigError as error:
        return error
    return None


def is_told(name: str, caplog: pytest.LogCaptureFixture) -> bool:
    return any(f"Settings without effect: {name} (" in each.message for each in caplog.records)


@pytest.mark.parametrize("maker", [odradek.Broker, odradek.Cluster])
@pytest.mark.parametrize("name", NAMES)
def test_without_what_it_protects_it_is_refused(
    name: str, maker: type, caplog: pytest.LogCaptureFixture
) -> None:
    error = refusal(lambda: maker(config={name: other_value(name)}))
    if error is None:
        assert is_told(name, caplog) or name in SERVED_ALONE
    else:
        assert error.name == name or name in REFUSED_BY_ANOTHER, "another setting is refused"
        assert REFUSAL.search(str(error))


@cache
def words_of_code() -> frozenset[str]:
    """The strings of the code by which a broker runs, without what describes settings."""
    paths = [SOURCES / "config" / f"{name}.py" for name in ("broker", "listeners", "endpoints")]
    for folder in ("server", "security", "metadata", "client/oauth"):
        paths += (SOURCES / folder).rglob("*.py")
    found = [re.findall(r'"([\w.]+)"', path.read_text(encoding="utf-8")) for path in paths]
    return frozenset(word for words in found for word in words)


def is_read(name: str) -> bool:
    """Whether some code looks at the setting; those of stores of keys are looked at by their last
    words."""
    return name in words_of_code() or name.removeprefix("zookeeper.") in words_of_code()


@pytest.mark.parametrize("name", NAMES)
def test_with_what_it_protects_it_is_served_or_told(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**ALL_THERE, name: other_value(name)}
    error = refusal(lambda: odradek.Broker(**LISTENERS, config=settings))
    if error is None:
        assert is_told(name, caplog) or is_read(name)
    else:
        assert error.name == name, "another setting is refused"
        assert re.search("cannot be loaded here|remove it if|would not know", str(error))


def idle_settings() -> Iterator[tuple[str, dict[str, str], str]]:
    """Listeners, settings of which the first does nothing on them, and what is said of it."""
    jaas = "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"
    plain = {"sasl.enabled.mechanisms": "PLAIN"}
    tokens = {"sasl.enabled.mechanisms": "OAUTHBEARER"}
    yield "SSL", {"listener.name.out.ssl.client.auth": "required"}, "no listener is called OUT"
    yield "SASL_SSL", {"ssl.client.auth": "required"}, "looks at listener.name.NAME.ssl.client.auth"
    yield "SASL_PLAINTEXT", {jaas: "x", **plain}, "no listener has SCRAM-SHA-256 among"
    yield "SASL_PLAINTEXT", {"sasl.oauthbearer.scope": "x", **plain}, "has OAUTHBEARER among"
    yield "SASL_PLAINTEXT", {"sasl.oauthbearer.expected.issuer": "x", **tokens}, "not signed"
    listener = "listener.name.sasl_plaintext."
    yield "SSL,SASL_PLAINTEXT", {f"{listener}ssl.client.auth": "required"}, "has SSL or SASL_SSL"
    yield "PLAINTEXT", {"listener.name.plaintext.connections.max.reauth.ms": "7"}, "or SASL_SSL"


@pytest.mark.parametrize(("protocols", "settings", "said"), list(idle_settings()))
def test_what_no_listener_looks_at_is_refused(
    protocols: str, settings: dict[str, str], said: str
) -> None:
    """A mistyped listener would be open to all."""
    listeners = [f"{protocol}://127.0.0.1:0" for protocol in protocols.split(",")]
    with pytest.raises(ConfigError, match=f"^{next(iter(settings))}.*{said}"):
        odradek.Broker(listeners=listeners, config=settings)


def test_no_password_is_told() -> None:
    """It would be in every log of the start."""
    with pytest.raises(ConfigError) as refused:
        odradek.Broker(config={"zookeeper.ssl.keystore.password": "geheim"})
    assert "geheim" not in str(refused.value)
