"""The TLS and SASL settings of a client that are kept, compared and sent to other processes before
a client is made with them: nothing that shows them shows a secret.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from odradek.client.settings import ADMIN_SETTINGS, ClientSettings
from odradek.config.tables.rows import rows

if TYPE_CHECKING:
    from odradek.client.core.network.handshake import LoginSource
    from odradek.client.security import ClientSecurity

SECURITY_SETTINGS: Final = tuple(row.name for row in rows("client_security"))
_HIDDEN: Final = "[hidden]"
# A process has few logins, and a long-lived one gets new passwords.
_MAX_LOGINS: Final = 16


@dataclass(frozen=True, repr=False)
class SecurityOptions:
    """Some of `SECURITY_SETTINGS`, each with its text."""

    given: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> "SecurityOptions":
        """The security among the settings of a client, checked.

        Raises:
            ConfigError: they do not go together, or a file that they name cannot be used.
        """
        given = {name: settings[name] for name in SECURITY_SETTINGS if name in settings}
        found = cls(tuple(given.items()))
        found.security()
        return found

    @property
    def is_plaintext(self) -> bool:
        """Whether the settings have the effect of none: no TLS, no login."""
        return dict(self.given).get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"

    def settings(self, bootstrap_servers: str) -> dict[str, object]:
        """The settings of a client of these brokers."""
        return {"bootstrap.servers": bootstrap_servers, **dict(self.given)}

    def security(self) -> "ClientSecurity":
        """Makes the security of a client in this process; all with these settings share the tokens
        of an issuer, which would otherwise be asked for one by every task.

        Raises:
            ConfigError: as of `of`.
        """
        # TLS is imported only if needed.
        from odradek.client.security import NO_SECURITY, client_security

        if self.is_plaintext:
            return NO_SECURITY
        return client_security(self._client_settings(), lambda: _shared_login(self))

    def _client_settings(self) -> ClientSettings:
        return ClientSettings(ADMIN_SETTINGS, dict(self.given), {})

    def __repr__(self) -> str:
        """The settings by their names, as Kafka shows them."""
        shown = (
            f"{name}={_HIDDEN if ADMIN_SETTINGS[name].is_sensitive else value}"
            for name, value in self.given
        )
        return ", ".join(shown)


@lru_cache(_MAX_LOGINS)
def _shared_login(options: SecurityOptions) -> "LoginSource":
    from odradek.client.security import client_login

    return client_login(options._client_settings())


NO_SECURITY_OPTIONS: Final = SecurityOptions()
