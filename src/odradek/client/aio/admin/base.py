"""What all calls of an admin share: its cluster, and the settling of many items."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from odradek.client.aio.closing import AsyncClosing
from odradek.client.aio.cluster import GROUP, ClusterClient
from odradek.client.aio.controllers import ControllerClient
from odradek.client.core.retries import Dice
from odradek.client.errors import AuthorizationError, KafkaError, NetworkError, raise_for
from odradek.client.settings import ADMIN_SETTINGS, ClientSettings
from odradek.clock import Clock
from odradek.errors import ErrorCode
from odradek.model import TopicPartition

T = TypeVar("T")
K = TypeVar("K")
NONE_FINAL: frozenset[ErrorCode] = frozenset()


class AdminBase(AsyncClosing):
    """An admin without calls. Connections are made when they are needed; `close` ends them."""

    def __init__(
        self,
        bootstrap_servers: str = "",
        config: Mapping[str, object] = {},
        *,
        clock: Clock | None = None,
        dice: Dice | None = None,
        **settings: object,
    ) -> None:
        """Connects to nobody yet.

        Raises:
            ValueError: a setting is illegal, or no broker is named.
        """
        if bootstrap_servers:
            settings["bootstrap_servers"] = bootstrap_servers
        known = ClientSettings(ADMIN_SETTINGS, config, settings)
        asks_controllers = bool(known.items("bootstrap.controllers"))
        if asks_controllers and known.items("bootstrap.servers"):
            raise ValueError("You cannot set both bootstrap.servers and bootstrap.controllers")
        kind = ControllerClient if asks_controllers else ClusterClient
        self._cluster = kind(known, clock=clock, dice=dice)

    async def close(self) -> None:
        """Closes every connection; calls under way get `ClientClosed`."""
        await self._close_once(self._cluster.close)

    async def _retrying(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Mapping[K, T | KafkaError]]],
        *,
        final: frozenset[ErrorCode] = NONE_FINAL,
    ) -> dict[K, T | KafkaError]:
        """Makes attempts until every item has a value, or an error that stays or is `final`.

        Raises:
            KafkaError: an attempt failed as a whole, for good, and nothing is answered yet.
        """
        answers: dict[K, T | KafkaError] = {}
        pending = list(dict.fromkeys(items))
        order = list(pending)

        async def ask_pending() -> None:
            nonlocal pending
            found = await attempt(pending)
            answers.update({item: found.get(item, _unanswered(item)) for item in pending})
            refused = {
                item: error
                for item in pending
                if isinstance(error := answers[item], KafkaError)
                and error.retriable
                and error.code not in final
            }
            pending = list(refused)
            for error in refused.values():
                raise error

        if pending:
            try:
                await self._cluster.retrying(ask_pending)
            except KafkaError as error:
                if not answers:
                    raise
                answers.update({item: error for item in pending if item not in answers})
        return {item: answers[item] for item in order}

    async def _each_node(self) -> list[int]:
        """The ids of all brokers, as the metadata has them now."""
        answer = await self._cluster.retrying(lambda: self._cluster.refresh([]))
        return sorted(answer.nodes)

    async def _controller(self) -> int | None:
        return await self._cluster.controller_id()

    async def _coordinator(self, key: str, key_type: int) -> int:
        """The coordinator of a group or a transactional id.

        Raises:
            AuthorizationError: it may not be asked for, in the words of Kafka's admin.
            KafkaError: there is none now.
        """
        try:
            return await self._cluster.coordinator_id(key, key_type)
        except AuthorizationError as error:
            kind, what = (
                ("GROUP", "groupId") if key_type == GROUP else ("TRANSACTION", "transactionalId")
            )
            raise AuthorizationError(
                f"FindCoordinator request for {what} `CoordinatorKey(idValue='{key}', "
                f"type={kind})` failed due to authorization failure",
                error.code,
            ) from None

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.request_timeout_ms


def outcome(code: int, value: T, message: str | None = None) -> T | KafkaError:
    """The value, or the error that came instead of it."""
    try:
        raise_for(int(code), message)
    except KafkaError as error:
        return error
    return value


def _unanswered(item: object) -> KafkaError:
    return NetworkError(f"the answer says nothing of {item}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as requests list them."""
    found: dict[str, list[int]] = {}
    for topic, partition in partitions:
        found.setdefault(topic, []).append(partition)
    return found
