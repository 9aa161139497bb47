"""The SASL of one listener by its settings: mechanisms, users, tokens, sessions."""

import base64
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.clock import Clock
from odradek.config import BrokerConfig, ConfigError
from odradek.log_limit import LimitedLog, printable
from odradek.security.jaas import JaasLine
from odradek.security.sasl.authenticator import LoginRules
from odradek.security.sasl.claims import ClaimRules, unsigned_validator
from odradek.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN, SaslServer
from odradek.security.sasl.oauthbearer import OAuthBearerServer, TokenValidator
from odradek.security.sasl.plain import PlainServer
from odradek.security.sasl.scram import ScramCredential, TokenCredential
from odradek.security.sasl.scram_server import ScramServer
from odradek.security.sasl.signed_tokens import PublicKeys, SignedTokenValidator
from odradek.server.security.jaas_lines import jaas_error, jaas_line
from odradek.server.security.names import JWKS_URL

logger = logging.getLogger(__name__)

NONCE_BYTES: Final = 24


class ScramCredentials(NamedTuple):
    """The credentials of SCRAM, by mechanism and name: of users, and of delegation tokens."""

    of_user: Callable[[str, str], ScramCredential | None]
    of_token: Callable[[str, str], TokenCredential | None]


class Logins:
    """The parts that the logins on one listener need; `rules` is what an authenticator works by."""

    def __init__(
        self,
        config: BrokerConfig,
        listener_name: str,
        clock: Clock,
        credentials: ScramCredentials,
        open_keys: Callable[[str], PublicKeys],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        """`open_keys` has the keys at a URL read.

        Raises:
            ConfigError: a mechanism is not served, or lacks what it needs.
        """
        self._config = config
        self._listener_name = listener_name
        self._clock = clock
        self._credentials = credentials
        self._open_keys = open_keys
        self._random_bytes = random_bytes
        self._refusals = LimitedLog(logger, clock)
        self._lines: dict[str, JaasLine] = {}
        self._validate: TokenValidator | None = None
        mechanisms = self._mechanisms()
        for mechanism in mechanisms:
            self._prepare(mechanism)
        self.rules: Final = LoginRules(
            mechanisms,
            self._new_server,
            {each: self._of("connections.max.reauth.ms", each) for each in mechanisms},
            clock,
        )

    def _of(self, name: str, mechanism: str | None = None) -> Any:
        return self._config.of_listener(self._listener_name, name, mechanism)

    def _mechanisms(self) -> tuple[str, ...]:
        enabled: tuple[str, ...] = self._of("sasl.enabled.mechanisms")
        unserved = [each for each in enabled if each not in MECHANISMS]
        if unserved or not enabled:
            raise ConfigError(
                "sasl.enabled.mechanisms",
                ",".join(enabled),
                "not supported",
                "sasl.enabled.mechanisms has "
                f"{', '.join(unserved) or 'nothing'}; served are {', '.join(MECHANISMS)} "
                "(GSSAPI, which is Kerberos, is Kafka's default)",
            )
        return enabled

    def _prepare(self, mechanism: str) -> None:
        self._lines[mechanism] = jaas_line(self._config, self._listener_name, mechanism)
        if mechanism == PLAIN and not self._lines[mechanism].users:
            raise self._error(
                mechanism,
                "it names no users; write "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="...";',
            )
        if mechanism == OAUTHBEARER:
            self._validate = self._validator(self._lines[mechanism])

    def _error(self, mechanism: str, reason: str) -> ConfigError:
        return jaas_error(self._listener_name, mechanism, reason)

    # --- one login -------------------------------------------------------------------------------

    def _new_server(self, mechanism: str) -> SaslServer:
        if mechanism == PLAIN:
            return PlainServer(self._lines[PLAIN].users.get)
        if mechanism == OAUTHBEARER:
            assert self._validate is not None, "it is made where tokens are taken"
            return OAuthBearerServer(self._validate, self._on_token_refused)
        nonce = base64.b64encode(self._random_bytes(NONCE_BYTES)).decode()
        known = self._credentials
        return ScramServer(
            mechanism, partial(known.of_user, mechanism), nonce, partial(known.of_token, mechanism)
        )

    def _on_token_refused(self, reason: str) -> None:
        self._refusals.warning(
            f"Listener {self._listener_name} refused a token: {printable(reason)}"
        )

    def _validator(self, line: JaasLine) -> TokenValidator:
        url: str | None = self._of(JWKS_URL, OAUTHBEARER)
        if not url:
            return self._unsigned_validator(line)
        rules = ClaimRules(
            self._of("sasl.oauthbearer.sub.claim.name", OAUTHBEARER),
            self._of("sasl.oauthbearer.scope.claim.name", OAUTHBEARER),
            audience=self._of("sasl.oauthbearer.expected.audience", OAUTHBEARER),
            issuer=self._of("sasl.oauthbearer.expected.issuer", OAUTHBEARER),
            skew_ms=self._of("sasl.oauthbearer.clock.skew.seconds", OAUTHBEARER) * 1000,
        )
        keys = self._open_keys(url)
        try:
            return SignedTokenValidator(keys, rules, self._clock.wall_ms)
        except ImportError as error:
            reason = "checking tokens needs the extra `security`: pip install 'odradek[security]'"
            raise ConfigError(JWKS_URL, url, reason, f"{JWKS_URL}: {reason}") from error

    def _unsigned_validator(self, line: JaasLine) -> TokenValidator:
        logger.warning(
            "Listener %s accepts unsigned tokens, which anyone can make: for tests "
            "only (%s is not set)",
            self._listener_name,
            JWKS_URL,
        )
        option = {
            name.removeprefix("unsecuredValidator"): value for name, value in line.options.items()
        }
        try:
            skew_ms = int(option.get("AllowableClockSkewMs", "0"))
        except ValueError:
            reason = "unsecuredValidatorAllowableClockSkewMs is no number"
            raise self._error(OAUTHBEARER, reason) from None
        rules = ClaimRules(
            option.get("PrincipalClaimName", "sub"),
            option.get("ScopeClaimName", "scope"),
            tuple(option.get("RequiredScope", "").split()),
            skew_ms=skew_ms,
        )
        return unsigned_validator(rules, self._clock.wall_ms)
