"""Reads the logins of a JAAS file, which compose files for Apache Kafka's image name in
`KAFKA_OPTS`.

    -Djava.security.auth.login.config=/etc/kafka/secrets/broker_jaas.conf

Its section `KafkaServer` has a login module for each mechanism of every listener; one that begins
with a listener's name, `internal.KafkaServer`, is for that listener alone. They become
`sasl.jaas.config` settings, and the section `Client`, with the login to ZooKeeper, becomes
`zookeeper.sasl.jaas.config`. Other options of `KAFKA_OPTS` are for the JVM.
"""

import re
from collections.abc import Mapping
from typing import Final

from odradek.config.definition import ConfigError
from odradek.errors import reason_of
from odradek.security.jaas import MODULES

_ZOOKEEPER_LOGIN: Final = "zookeeper.sasl.jaas.config"
_OPTION: Final = re.compile(r"-Djava\.security\.auth\.login\.config==?(\S+)")
_QUOTED: Final = r'"(?:\\.|[^"\\])*"'
_COMMENT: Final = re.compile(rf"({_QUOTED})|//[^\n]*|/\*.*?\*/", re.DOTALL)
_SECTION: Final = re.compile(rf'([^\s{{;]+)\s*\{{((?:{_QUOTED}|[^"}}])*)\}}\s*;')
_LOGIN: Final = re.compile(rf'((?:{_QUOTED}|[^";])+;)')


def settings_of_logins(options: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The settings equivalent to the file named in `options`, for the listeners of `settings`.

    Raises:
        ConfigError: the file cannot be read, or has no section for a broker.
    """
    match = _OPTION.search(options)
    if match is None:
        return {}
    has_zookeeper = bool(settings.get("zookeeper.connect"))
    sections = _read_sections(match[1], ("KafkaServer", *(("Client",) if has_zookeeper else ())))
    found: dict[str, str] = {}
    if has_zookeeper:
        for login in _LOGIN.findall(sections.get("Client", "")):
            found[_ZOOKEEPER_LOGIN] = login.strip()
    for listener in settings.get("listeners", "").split(","):
        name = listener.partition("://")[0].strip().lower()
        section = sections.get(f"{name}.KafkaServer", sections.get("KafkaServer", ""))
        for login in (each.strip() for each in _LOGIN.findall(section)):
            for mechanism, module in MODULES.items():
                if login.split()[0] == module:
                    found[f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"] = login
    return found


def _read_sections(path: str, wanted: tuple[str, ...]) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            text = _COMMENT.sub(lambda match: match[1] or " ", file.read())
    except (OSError, ValueError) as error:  # a ValueError: it is no UTF-8
        raise _refusal(path, reason_of(error)) from error
    sections: dict[str, str] = dict(_SECTION.findall(text))
    if not any(name.endswith(wanted) for name in sections):
        raise _refusal(path, f"it has no section {' or '.join(wanted)} {{ ... }};")
    return sections


def _refusal(path: str, reason: str) -> ConfigError:
    sentence = f"KAFKA_OPTS names {path} for the logins of the broker: {reason}"
    return ConfigError("KAFKA_OPTS", path, reason, sentence)
