"""The meaning of one word about security: the listener's settings, and its users' credentials."""

from collections.abc import Mapping
from typing import Final

from odradek.clock import Clock
from odradek.security.jaas import UNSIGNED_SUBJECT, jaas_text
from odradek.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from odradek.security.sasl.scram import SCRAM_MECHANISMS
from odradek.security.scram_users import NewUser
from odradek.server.in_process.protected.authority import HOSTS, CertificateAuthority
from odradek.server.in_process.protected.login import Login
from odradek.server.in_process.protected.secret import HiddenUsers, NotUsers, Secret
from odradek.server.randomness import rng_of

TLS: Final = "tls"
BROKER_USER: Final = "odradek"
_PASSWORD_BYTES: Final = 24
MTLS: Final = "mtls"
_MECHANISMS: Final[Mapping[str, tuple[str, ...]]] = {
    "plain": (PLAIN,),
    "scram": (SCRAM_SHA_256, SCRAM_SHA_512),
    "oauth": (OAUTHBEARER,),
}
WORDS: Final = (TLS, MTLS, *_MECHANISMS, *(f"{each}+{TLS}" for each in _MECHANISMS))
# So that a user has the same name by a certificate as by a password.
_COMMON_NAME: Final = "RULE:^CN=(.*)$/$1/,DEFAULT"


def _checked_users(users: HiddenUsers) -> dict[str, str]:
    """The users, if they are some."""
    if isinstance(users, NotUsers):
        kind = users.type_name
        raise TypeError(f"users is a mapping of names to passwords, not a value of type {kind}")
    found: dict[str, str] = {}
    for name, password in users.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a user is a text, not {type(name).__name__}")
        if not isinstance(password, str):
            raise TypeError(f"the password of {name!r} is a text, not {type(password).__name__}")
        found[name] = password
    return found


class Protection:
    """The security of a broker, or a cluster, in a test: its listener's settings, and its users."""

    def __init__(self, word: str, users: HiddenUsers, clock: Clock) -> None:
        """Raises:
        ValueError: there is no security of that word.
        TypeError: the users are no mapping of texts.
        ImportError: it needs the extra `security`.
        """
        if word not in WORDS:
            raise ValueError(f"security is one of {', '.join(WORDS)}, not {word!r}")
        sasl, _, tls = word.partition("+")
        self.mechanisms: Final = _MECHANISMS.get(sasl, ())
        self._is_tls = not self.mechanisms or bool(tls)
        self._is_mutual = word == MTLS
        self._users: Final = _checked_users(users)
        self._clock: Final = clock
        self._broker_password = Secret(rng_of(None).randbytes(_PASSWORD_BYTES).hex())
        self._authority: Final = CertificateAuthority() if self._is_tls else None

    @property
    def protocol(self) -> str:
        """The security protocol of the listener, which is its name, too."""
        if not self.mechanisms:
            return "SSL"
        return "SASL_SSL" if self._is_tls else "SASL_PLAINTEXT"

    @property
    def scram_users(self) -> list[NewUser]:
        """Whose passwords the broker has to know for SCRAM."""
        return [
            NewUser(mechanism, name, password)
            for mechanism in self.mechanisms
            for name, password in self._users.items()
            if mechanism in SCRAM_MECHANISMS
        ]

    @property
    def cluster_scram_users(self) -> list[NewUser]:
        """The users of SCRAM in a cluster: the brokers are one, too."""
        return [
            *self.scram_users,
            *(
                NewUser(mechanism, BROKER_USER, self._broker_password)
                for mechanism in self.mechanisms[:1]
                if mechanism in SCRAM_MECHANISMS
            ),
        ]

    def cluster_settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """The settings of brokers that also protect their own connections, besides `given` ones:
        they are a separate user, which may do everything."""
        settings = self.settings()
        for mechanism in self.mechanisms[:1]:
            settings["sasl.mechanism.inter.broker.protocol"] = mechanism
            name = f"listener.name.{self.protocol.lower()}.{mechanism.lower()}.sasl.jaas.config"
            settings[name] = Secret(jaas_text(mechanism, self._cluster_options(mechanism)))
        if not self.mechanisms and not self._is_mutual:
            settings["ssl.client.auth"] = "requested"
        if given.get("authorizer.class.name"):
            others = filter(None, given.get("super.users", "").split(";"))
            settings["super.users"] = ";".join((*others, f"User:{BROKER_USER}"))
        return settings

    def _cluster_options(self, mechanism: str) -> dict[str, str]:
        if mechanism == OAUTHBEARER:
            return {UNSIGNED_SUBJECT: BROKER_USER}
        options = {"username": BROKER_USER, "password": self._broker_password}
        if mechanism == PLAIN:
            options |= self._plain_options() | {f"user_{BROKER_USER}": self._broker_password}
        return options

    def _plain_options(self) -> dict[str, str]:
        return {f"user_{name}": password for name, password in self._users.items()}

    def settings(self) -> dict[str, str]:
        """The settings the broker is started with."""
        settings: dict[str, str] = {"security.inter.broker.protocol": self.protocol}
        if self._authority is not None:
            own = self._authority.issue(BROKER_USER, HOSTS)
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.key": Secret(own.key),
                "ssl.keystore.certificate.chain": own.certificate,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self._authority.certificate,
                "ssl.principal.mapping.rules": _COMMON_NAME,
            }
        if self._is_mutual:
            settings["ssl.client.auth"] = "required"
        if self.mechanisms:
            settings["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
        if PLAIN in self.mechanisms:
            name = f"listener.name.{self.protocol.lower()}.plain.sasl.jaas.config"
            settings[name] = Secret(jaas_text(PLAIN, self._plain_options()))
        return settings

    def login(self, name: str, password: str | None, bootstrap_servers: str) -> Login:
        """The login of a user; see `Broker.login`."""
        if name not in self._users and password is None:
            known = ", ".join(self._users) or "none"
            raise ValueError(f"there is no user {name!r}; users= has {known}")
        authority = self._authority
        return Login(
            name,
            self._users.get(name, "") if password is None else password,
            bootstrap_servers,
            self.protocol,
            self.mechanisms[0] if self.mechanisms else None,
            None if authority is None else authority.certificate,
            authority.issue(name) if authority is not None and self._is_mutual else None,
            self._clock,
        )
