"""The entry point of the container image: `odradek start`, with the variables of Apache Kafka's
image.

    python -m odradek.cli.container DATA_DIR CONFIG_DIR [FLAG ...]

A variable `KAFKA_LOG_RETENTION_MS` is the setting `log.retention.ms`; two underscores are one in
the name, three a hyphen. They go before `server.properties` in the folder for mounted settings, and
flags before both. With nothing of this, clients of this host are served at localhost:9092. Records
are in `DATA_DIR` unless the settings name another place. If the first argument is not a flag, it is
a program to run instead.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from odradek.cli.image_logins import settings_of_logins
from odradek.cli.terminal import tell
from odradek.config.definition import readable
from odradek.config.files.properties import load_properties, parse_properties

_PREFIX: Final = "KAFKA_"
# They configure the JVM and the log of Kafka's scripts, and are no settings there either; the
# logins in KAFKA_OPTS have a separate module.
_NO_SETTINGS: Final = frozenset(
    {
        "KAFKA_VERSION",
        "KAFKA_HEAP_OPTS",
        "KAFKA_LOG4J_OPTS",
        "KAFKA_OPTS",
        "KAFKA_JMX_OPTS",
        "KAFKA_JVM_PERFORMANCE_OPTS",
        "KAFKA_GC_LOG_OPTS",
        "KAFKA_LOG4J_ROOT_LOGLEVEL",
        "KAFKA_LOG4J_LOGGERS",
        "KAFKA_TOOLS_LOG4J_LOGLEVEL",
        "KAFKA_JMX_HOSTNAME",
    }
)
_ADVERTISED: Final = "advertised.listeners"
_DEFAULTS: Final = {
    "listeners": "PLAINTEXT://0.0.0.0:9092",
    _ADVERTISED: "PLAINTEXT://localhost:9092",
}
# The end of a line that the next one does not continue.
_LINE_END: Final = re.compile(r"(?<![\\\r])(?:\r\n|\r|\n)")
_SECRETS: Final = "/etc/kafka/secrets"
# The cluster that a new broker is the first of; one that has data keeps its own.
_CLUSTER_ID: Final = "CLUSTER_ID"
_APACHES_START: Final = "/etc/kafka/docker/run"


def settings_of(environment: Mapping[str, str], secrets: str = _SECRETS) -> dict[str, str]:
    """The settings that the environment holds, with those of files among the `secrets`.

    Raises:
        ConfigError: a value has a broken escape.
        OSError: a file of secrets cannot be read.
    """
    settings: dict[str, str] = {}
    for name, value in environment.items():
        if name.startswith(_PREFIX) and name != _PREFIX and name not in _NO_SETTINGS:
            # Apache's image makes a file of them, so that a value may have escapes. There the
            # backslash at the end of one value would take in another variable.
            settings |= parse_properties(f"{_setting(name)}={_one_line(value)}")
    for store in ("ssl.keystore", "ssl.truststore"):
        if (file := settings.pop(f"{store}.filename", None)) is not None:
            settings.setdefault(f"{store}.location", f"{secrets}/{file}")
    for key in ("ssl.key", "ssl.keystore", "ssl.truststore"):
        if (file := settings.pop(f"{key}.credentials", None)) is not None:
            settings.setdefault(f"{key}.password", _secret(f"{secrets}/{file}"))
    return settings


def _one_line(value: str) -> str:
    """The value as written in a file. There its further lines, of a private key for one, would be
    settings that nobody knows: those are named in the log."""
    return _LINE_END.sub(r"\\n", value.rstrip("\r\n"))


def _setting(variable: str) -> str:
    dotted = variable.removeprefix(_PREFIX).lower().replace("_", ".")
    return dotted.replace("...", "-").replace("..", "_")


def _secret(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except ValueError as error:  # no UTF-8, or a path that can be nobody's
        raise ValueError(f"{readable(path)}: {error}") from error


def settings_beneath(
    config_dir: str, flags: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """The settings that lie under the flags; raises as `settings_of`."""
    file = os.path.join(config_dir, "server.properties")
    mounted = load_properties(file) if os.path.lexists(file) else {}
    settings = mounted | settings_of(environment)
    if not settings and not flags:
        settings = dict(_DEFAULTS)
    settings = _listeners_of(settings.get(_ADVERTISED, "")) | settings
    return settings_of_logins(environment.get("KAFKA_OPTS", ""), settings) | settings


def _listeners_of(advertised: str) -> dict[str, str]:
    """The listeners, if only addresses for clients are given: Confluent's images derive them, and
    Apache's refuses others than that of its one listener."""
    parts = [each.strip().partition("://") for each in advertised.split(",") if each.strip()]
    if all(name.upper() == "PLAINTEXT" for name, _, _ in parts):
        return {}
    ports = (f"{name}://:{address.rpartition(':')[2]}" for name, _, address in parts)
    return {"listeners": ",".join(ports)}


def main(arguments: Sequence[str]) -> int:
    """Runs the broker, or the program that is named instead."""
    from odradek.cli.main import main as run_command

    data_dir, config_dir, *words = arguments
    if words[:1] == [_APACHES_START]:
        words = words[1:]
    if words and not words[0].startswith("-"):
        return _run_instead(words)
    try:
        settings = settings_beneath(config_dir, words, os.environ)
    except (OSError, ValueError) as error:
        from odradek.errors import text_of

        tell(text_of(error))
        return 1
    return run_command(
        ["start", *words],
        beneath=settings,
        default_data_dir=data_dir,
        # A file of variables may end its lines as Windows does.
        cluster_id=os.environ.get(_CLUSTER_ID, "").strip(),
    )


def _run_instead(words: list[str]) -> int:
    try:
        os.execvp(words[0], words)
    except OSError as error:
        from odradek.errors import reason_of

        tell(f"{words[0]}: {reason_of(error)}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
