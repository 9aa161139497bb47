"""References of settings to what stands elsewhere; the values are those of Apache Kafka 4.3."""

from pathlib import Path

import pytest

import odradek
from odradek.config import ConfigError
from odradek.config.files.providers import resolved

PACKAGE = "org.apache.kafka.common.config.provider"
PROVIDERS = {
    "config.providers": "env, file,directory",
    "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
    "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
    "config.providers.directory.class": f"{PACKAGE}.DirectoryConfigProvider",
}
ENVIRONMENT = {"DATA": "/data", "HOME": "/root", "NESTED": "${env:DATA}"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A file of properties, and a directory of secrets."""
    (tmp_path / "p.properties").write_text(
        "dir=/from/file\nempty=\ncity=Zürich\n", encoding="utf-8"
    )
    (tmp_path / "secrets").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "secrets" / "one").write_text("first\n")
    return tmp_path


def value_of(text: str, files: Path, more: dict[str, str] | None = None) -> str:
    text = text.replace("@", str(files))
    more = {name: each.replace("@", str(files)) for name, each in (more or {}).items()}
    return resolved({**PROVIDERS, **more, "log.dirs": text}, ENVIRONMENT)["log.dirs"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:DATA}", "/data"),
        ("a-${env:DATA}-b${env:HOME}", "a-/data-b/root"),
        ("$${env:DATA}", "$/data"),
        ("x${env:NOPE}y${env:DATA}", "x${env:NOPE}y/data"),
        ("${env:}", "${env:}"),
        ("${env:NESTED}", "${env:DATA}"),
        ("${other:x}", "${other:x}"),
        ("${file:@/p.properties:dir}", "/from/file"),
        ("${file:@/p.properties:empty}", ""),
        ("${file:@/p.properties:city}", "Zürich"),
        ("${file:@/p.properties}", "${file:@/p.properties}"),
        ("${directory:@/secrets:one}", "first\n"),
        ("${directory:@/secrets:two}", "${directory:@/secrets:two}"),
        ("${directory:@:secrets/one}", "${directory:@:secrets/one}"),
    ],
)
def test_a_reference_is_what_it_stands_for(text: str, value: str, files: Path) -> None:
    """Data would go to a folder named `${env:DATA}`, and a reference would be a password."""
    assert value_of(text, files) == value.replace("@", str(files))


def test_what_is_not_allowed_is_not_looked_up(files: Path) -> None:
    """A file of settings could be made to show what its owner has closed."""
    limits = {
        "config.providers.env.param.allowlist.pattern": "DA.*",
        "config.providers.file.param.allowed.paths": "@/secrets",
        "config.providers.directory.param.allowed.paths": "@/other,@/secrets",
    }
    assert value_of("${env:DATA}${env:HOME}", files, limits) == "/data${env:HOME}"
    for closed in ("${file:@/p.properties:dir}", "${directory:@/secrets/..:p.properties}"):
        assert value_of(closed, files, limits) == closed.replace("@", str(files))
    assert value_of("${directory:@/secrets:one}", files, limits) == "first\n"


@pytest.mark.parametrize("paths", ["", "/", "@/", "@/secrets/..,/"])
def test_what_is_allowed_is_looked_up(paths: str, files: Path) -> None:
    """The reference would be taken for the value."""
    limits = {"config.providers.file.param.allowed.paths": paths}
    assert value_of("${file:@/p.properties:dir}", files, limits) == "/from/file"


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ("etc", "Path etc is not absolute"),
        ("/nope", "Path /nope does not exist"),
        ("@,@/nope", "Path @/nope does not exist"),
    ],
)
def test_a_path_that_allows_nothing_is_refused(paths: str, reason: str, files: Path) -> None:
    """After a typing error one would look for the fault in each reference."""
    limits = {"config.providers.file.param.allowed.paths": paths}
    with pytest.raises(ConfigError) as refused:
        value_of("plain", files, limits)
    assert str(refused.value) == reason.replace("@", str(files))


def test_without_a_provider_a_reference_is_text() -> None:
    """Values that only look like one would change."""
    assert resolved({"a": "${env:DATA}"}, ENVIRONMENT) == {"a": "${env:DATA}"}
    named = {"config.providers": "env", "a": "${env:DATA}"}
    assert resolved(named, ENVIRONMENT) == named


@pytest.mark.parametrize(
    ("text", "more", "reason"),
    [
        ("${file:/nope/x:dir}", {}, "Could not read properties from file /nope/x"),
        ("${file:/a\0b:dir}", {}, "Could not read properties from file /a\\u0000b"),
        (
            "${env:a:DATA}",
            {},
            "Path is not supported for EnvVarConfigProvider, invalid value 'a'",
        ),
        (
            "plain",
            {"config.providers.env.class": "foo.Bar"},
            "Invalid value foo.Bar for configuration config.providers.env.class: Could not load "
            "config provider class or one of its dependencies",
        ),
        (
            "plain",
            {"config.providers.env.param.allowlist.pattern": "("},
            "Invalid value ( for configuration config.providers.env.param.allowlist.pattern: "
            "missing ): (",
        ),
        (
            "plain",
            {"config.providers.env.param.allowlist.pattern": "[A-Z&&[^X]]*"},
            "Invalid value [A-Z&&[^X]]* for configuration "
            "config.providers.env.param.allowlist.pattern: RE2 has no intersections of classes: &&",
        ),
    ],
)
def test_what_cannot_be_had_is_refused(
    text: str, more: dict[str, str], reason: str, files: Path
) -> None:
    """A broker would start with the reference for a value."""
    with pytest.raises(ConfigError) as refused:
        value_of(text, files, more)
    assert str(refused.value) == reason


def test_a_file_of_secrets_is_named(files: Path) -> None:
    """The error would not say which of several files has the broken escape."""
    (files / "p.properties").write_text("dir=\\u12")
    with pytest.raises(ConfigError, match=rf"^{files}/p\.properties: .*hexadecimal"):
        value_of("${file:@/p.properties:dir}", files)


def test_a_broker_in_a_program_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings are those of a file as often as not."""
    monkeypatch.setenv("PARTITIONS", "7")
    config = {**PROVIDERS, "num.partitions": "${env:PARTITIONS}"}
    with odradek.Broker(config=config) as broker:
        broker.produce("orders", "spool")
        assert broker.topics() == {"orders": 7}
