"""Lines of JAAS, in which Kafka's settings have credentials.

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret" user_alice="secret";

A value is a word, or in quotes, in which a backslash escapes the next character.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

FLAGS: Final = ("required", "requisite", "sufficient", "optional")
MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
"""The login module of every mechanism that is served."""

DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
"""The login module of brokers that log in to ZooKeeper."""

UNSIGNED_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
"""The option with the subject of unsigned tokens."""

_USER: Final = "user_"
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


class JaasLine(NamedTuple):
    """A login module with its options, none of which are to be shown."""

    module: str
    options: Mapping[str, str]

    @property
    def users(self) -> dict[str, str]:
        """The passwords of `user_NAME="PASSWORD"`."""
        return {
            name.removeprefix(_USER): value
            for name, value in self.options.items()
            if name.startswith(_USER)
        }

    def __repr__(self) -> str:
        return f"JaasLine({self.module}, {len(self.options)} options)"


def parse_jaas(text: str) -> JaasLine:
    """Reads a line; errors do not show what may be a secret.

    Raises:
        ValueError: it is none.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 3 or tokens[-1] != ";":
        raise ValueError("a JAAS configuration is MODULE FLAG NAME=VALUE ... and a semicolon")
    module, flag, *pairs = tokens[:-1]
    if flag.lower() not in FLAGS:
        raise ValueError(f"the flag behind {module} must be one of {', '.join(FLAGS)}")
    if len(pairs) % 3:
        raise ValueError(f"the options behind {module} are not NAME=VALUE")
    options: dict[str, str] = {}
    for name, equals, value in zip(pairs[::3], pairs[1::3], pairs[2::3], strict=True):
        if equals != "=":
            raise ValueError(f"the options behind {module} are not NAME=VALUE")
        options[name] = value
    return JaasLine(module, options)


def jaas_text(mechanism: str, options: Mapping[str, str]) -> str:
    """A line that `parse_jaas`, and Kafka, read."""
    pairs = "".join(f" {_named(name)}={_quoted(value)}" for name, value in options.items())
    return f"{MODULES[mechanism]} required{pairs};"


def _named(name: str) -> str:
    return name if name.isidentifier() else _quoted(name)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        character = text[position]
        if character.isspace():
            position += 1
        elif character in "=;":
            yield character
            position += 1
        elif character in "\"'":
            token, position = _read_quoted(text, position)
            yield token
        else:
            end = position
            while end < len(text) and not text[end].isspace() and text[end] not in "=;\"'":
                end += 1
            yield text[position:end]
            position = end


def _read_quoted(text: str, begin: int) -> tuple[str, int]:
    """The value that begins with a quote there, and where it has ended."""
    read: list[str] = []
    position = begin + 1
    while position < len(text) and text[position] != text[begin]:
        if text[position] == "\\" and position + 1 < len(text):
            position += 1
            read.append(_ESCAPES.get(text[position], text[position]))
        else:
            read.append(text[position])
        position += 1
    if position >= len(text):
        raise ValueError("a quote in a JAAS configuration is not closed")
    return "".join(read), position + 1
