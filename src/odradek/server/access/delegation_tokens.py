"""The delegation tokens of a broker, if it has a key for them. Without one nothing of it is
imported."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.clock import Clock
from odradek.config import BrokerConfig
from odradek.controller import Controller
from odradek.metadata.cache import MetadataCache
from odradek.timer import PeriodicTask, Timer

if TYPE_CHECKING:
    from odradek.security.delegation_tokens import DelegationTokens


def delegation_tokens(
    config: BrokerConfig,
    clock: Clock,
    metadata: MetadataCache,
    controller: Controller,
    random_bytes: Callable[[int], bytes],
) -> "DelegationTokens | None":
    """Makes the manager of delegation tokens, or none without a secret key."""
    secret_key: str | None = config["delegation.token.secret.key"]
    if not secret_key:
        return None
    from odradek.security.delegation_tokens import DelegationTokens, TokenTimes

    times = TokenTimes(
        config["delegation.token.max.lifetime.ms"], config["delegation.token.expiry.time.ms"]
    )
    return DelegationTokens(
        secret_key, times, clock, lambda: metadata.image, controller.alter_kept, random_bytes
    )


def removal_of_expired(
    tokens: "DelegationTokens",
    config: BrokerConfig,
    timer: Timer,
    metadata: MetadataCache,
) -> PeriodicTask:
    """Removes expired tokens from time to time; as in Kafka the controller alone does."""

    def look() -> None:
        if metadata.image.controller_id == config.broker_id:
            tokens.remove_expired()

    return PeriodicTask(timer, lambda: config["delegation.token.expiry.check.interval.ms"], look)
