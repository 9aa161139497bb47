"""Code that all calls of an admin share: its cluster, and the settling of many items.

After a time-out it is unknown whether a broker has made a change. So a change that cannot be made
twice (the topic would already exist) is not retried after a time-out. Like Kafka's admin, this one
does retry it after a broken connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from odradek.client.aio.closing import AsyncClosing
from odradek.client.aio.cluster import ClusterClient
from odradek.client.aio.controllers import ControllerClient
from odradek.client.core.cluster import GROUP
from odradek.client.core.metadata import Node
from odradek.client.core.retries import Rng
from odradek.client.core.settling import Settling
from odradek.client.errors import (
    AuthorizationError,
    KafkaError,
    NetworkError,
    RequestTimedOut,
    raise_for,
    unanswered,
)
from odradek.client.settings import ADMIN_SETTINGS, ClientSettings
from odradek.clock import Clock
from odradek.errors import ErrorCode

T = TypeVar("T")
K = TypeVar("K")
NONE_FINAL: Final[frozenset[ErrorCode]] = frozenset()
IN_DOUBT: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT})
# Items by the broker to ask, None for any, and the errors of items without a broker.
Route = Callable[[list[K]], Awaitable[tuple[Mapping[Any, list[K]], Mapping[K, KafkaError]]]]


class AdminBase(AsyncClosing):
    """An admin without calls. Connections are made when they are needed; `close` ends them."""

    def __init__(
        self,
        bootstrap_servers: str | Mapping[str, object] = "",
        config: Mapping[str, object] = {},
        *,
        clock: Clock | None = None,
        rng: Rng | None = None,
        **settings: object,
    ) -> None:
        """Does not connect yet.

        Raises:
            ValueError: a setting is illegal, or no broker is named.
        """
        known = ClientSettings(ADMIN_SETTINGS, config, settings, bootstrap_servers)
        asks_controllers = bool(known.items("bootstrap.controllers"))
        if asks_controllers and known.items("bootstrap.servers"):
            raise ValueError("You cannot set both bootstrap.servers and bootstrap.controllers")
        kind = ControllerClient if asks_controllers else ClusterClient
        self._cluster = kind(known, retries=known.number("retries"), clock=clock, rng=rng)

    async def close(self) -> None:
        """Closes every connection; calls under way get `ClientClosed`."""
        await self._close_once(lambda _: self._cluster.close())

    async def _retrying(
        self,
        items: Iterable[K],
        attempt: Callable[[list[K]], Awaitable[Mapping[K, T | KafkaError]]],
        *,
        final: frozenset[ErrorCode] = NONE_FINAL,
        answers: dict[K, T | KafkaError] | None = None,
    ) -> dict[K, T | KafkaError]:
        """Makes attempts until every item has a value, or an error that is permanent or `final`.
        Each item is asked for again as long as its own error is transient. `answers` may be filled
        by the attempt, in parts: its contents count if the time-out ends an attempt.

        Raises:
            KafkaError: an attempt failed as a whole, for good, and nothing is answered yet.
        """
        limit = self._cluster.time_limit()
        settling = Settling(items, limit, final, {} if answers is None else answers)

        async def ask_pending() -> None:
            for error in settling.take(await attempt(settling.pending)):
                # Also after a final error: a broker that timed out may be unreachable for all
                # items.
                self._cluster.forget_whom_to_ask(error)
            settling.raise_pending()

        failure: KafkaError | None = None
        if settling.pending:
            try:
                await self._cluster.retrying(ask_pending, limit)
            except KafkaError as error:
                if not settling.answers:
                    raise
                failure = error
        return settling.outcome(failure)

    async def _retrying_each(
        self,
        items: Iterable[K],
        route: Route[K],
        ask: Callable[[Any, list[K]], Awaitable[Mapping[K, T | KafkaError]]],
        *,
        final: frozenset[ErrorCode] = NONE_FINAL,
    ) -> dict[K, T | KafkaError]:
        """Like `_retrying`, for items of several brokers, which are asked at once: a failure of one
        affects only its items.

        Raises:
            KafkaError: the brokers to ask cannot be found, or, where any broker would do, none
                answers.
        """
        answers: dict[K, T | KafkaError] = {}

        async def attempt(pending: list[K]) -> Mapping[K, T | KafkaError]:
            by_node, refused = await route(pending)
            answers.update(refused)

            async def ask_one(node_id: int | None, theirs: list[K]) -> None:
                found: Mapping[K, T | KafkaError]
                try:
                    found = await ask(node_id, theirs)
                except KafkaError as error:
                    if node_id is None and theirs == pending:
                        raise
                    found = dict.fromkeys(theirs, error)
                answers.update({each: found.get(each, unanswered(each)) for each in theirs})

            await asyncio.gather(*(ask_one(*each) for each in by_node.items()))
            return answers

        return await self._retrying(items, attempt, final=final, answers=answers)

    async def _retrying_change(
        self,
        items: Iterable[K],
        whom: Callable[[], Awaitable[int | None]],
        ask: Callable[[int | None, list[K]], Awaitable[Mapping[K, T | KafkaError]]],
        *,
        final: frozenset[ErrorCode] = NONE_FINAL,
    ) -> dict[K, T | KafkaError]:
        """Like `_retrying`, for a change that one broker makes and that must not be made twice.

        Raises:
            KafkaError: as `_retrying`.
        """

        async def attempt(pending: list[K]) -> Mapping[K, T | KafkaError]:
            node_id = await whom()
            try:
                return await ask(node_id, pending)
            except RequestTimedOut as error:
                return dict.fromkeys(pending, error)

        return await self._retrying(items, attempt, final=final | IN_DOUBT)

    async def _anybody(self) -> None:
        """Names no broker: any one passes the change on."""

    async def _each_node(self) -> list[int]:
        """The ids of all brokers, as the metadata has them now."""
        answer = await self._cluster.retrying(lambda: self._cluster.ask_metadata([]))
        return sorted(answer.nodes)

    async def _known_node(self, node_id: int) -> Node:
        """The broker of an id, which may have gone since its id was learnt.

        Raises:
            NetworkError: it is not known now.
        """
        if node_id not in self._cluster.metadata.nodes:
            await self._cluster.refresh([])
        node = self._cluster.metadata.nodes.get(node_id)
        if node is None:
            raise NetworkError(f"broker {node_id} is not known now")
        return node

    async def _by_coordinator(
        self, group_ids: list[str]
    ) -> tuple[dict[int, list[str]], dict[str, KafkaError]]:
        """Groups by the broker to ask, and the errors of the others.

        Raises:
            KafkaError: no broker answers.
        """
        found: dict[int, list[str]] = {}
        refused: dict[str, KafkaError] = {}
        for group_id in group_ids:
            try:
                node_id = await self._coordinator(group_id, GROUP)
            except (NetworkError, RequestTimedOut):
                raise
            except KafkaError as error:
                refused[group_id] = error
            else:
                found.setdefault(node_id, []).append(group_id)
        return found, refused

    def _whom(self, group_id: str) -> Callable[[], Awaitable[int]]:
        """Finds a group's coordinator."""
        return lambda: self._coordinator(group_id, GROUP)

    async def _controller(self) -> int | None:
        return await self._cluster.controller_id()

    async def _coordinator(self, key: str, key_type: int) -> int:
        """The coordinator of a group or a transactional id.

        Raises:
            AuthorizationError: the caller may not ask for it, with the text of Kafka's admin.
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
    """The value, or the error in its place."""
    try:
        raise_for(int(code), message)
    except KafkaError as error:
        return error
    return value


async def each_of(items: list[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T | KafkaError]:
    """Asks for all items at once; an error of one does not affect the others."""
    answers = await asyncio.gather(*map(ask, items), return_exceptions=True)
    found: dict[K, T | KafkaError] = {}
    for item, answer in zip(items, answers, strict=True):
        if isinstance(answer, BaseException) and not isinstance(answer, KafkaError):
            raise answer
        found[item] = answer
    return found
