"""Names of settings that more than one module here speaks of."""

from typing import Final

JAAS: Final = "sasl.jaas.config"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
