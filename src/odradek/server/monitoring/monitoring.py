"""`Monitoring`: the metrics of one broker, for a test, a scrape, a command.

A scrape is made in slices of the event loop: whenever one has taken as long as a few requests do,
the others have their turn. One is created at a time; requests meanwhile wait for theirs.
"""

import asyncio
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from odradek.handlers.request_metrics import RequestMetrics
from odradek.network import ListenerError
from odradek.network.listener import cannot_listen
from odradek.server.explain.answers import asked_about, explain
from odradek.server.explain.painting import Painter
from odradek.server.explain.picture import KINDS
from odradek.server.lifecycle import BrokerState
from odradek.server.monitoring.beans import Beans
from odradek.server.monitoring.client_series import add_client_series, client_samples
from odradek.server.monitoring.exporter_series import add_exporter_series
from odradek.server.monitoring.exposition import OPEN_METRICS_TYPE, TEXT_TYPE, Exposition
from odradek.server.monitoring.own_series import add_own_series
from odradek.server.monitoring.responder import HttpAnswer, HttpError, HttpRequest, Responder
from odradek.server.monitoring.time_lags import TimeLags

if TYPE_CHECKING:
    from odradek.server.broker import BrokerServer

T = TypeVar("T")

SLICE_SECONDS: Final = 0.002
_OPEN_METRICS: Final = "application/openmetrics-text"
_SCHEME: Final = "http"
_START_PAGE: Final = b"Odradek. Metrics: /metrics. Why nothing comes: /explain?group=NAME\n"


def parse_address(address: str) -> tuple[str, int]:
    """Returns host and port of `http://HOST:PORT`.

    Raises:
        ListenerError: that is no such address.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port, parts = "", None, urlsplit("")
    if parts.scheme != _SCHEME or port is None or parts.path not in ("", "/"):
        raise ListenerError(f"metrics.listener is http://HOST:PORT, not {address}")
    return host, port


class Monitoring:
    """Made once for a broker; `requests` has been told of its requests."""

    def __init__(self, server: "BrokerServer", requests: RequestMetrics) -> None:
        self._server: Final = server
        self._beans: Final = Beans(server, requests)
        self._lags: Final = TimeLags(server)
        self._turn: Final = asyncio.Lock()
        self._responder: Final = Responder(self.answer)

    @property
    def url(self) -> str:
        """The address of the metrics; empty if they are not served."""
        return self._responder.url

    def read(self) -> dict[str, float | dict[str, float]]:
        """Every metric by the name of Kafka's bean: the value of a gauge, else what the bean's
        attributes are called and have."""
        now_ms = self._server.clock.monotonic_ms()
        found: dict[str, float | dict[str, float]] = {}
        for sample in self._beans.samples():
            if sample is None:
                continue
            attributes = sample.attributes(now_ms)
            known = found.get(sample.bean)
            if sample.is_attribute and isinstance(known, dict):
                known.update(attributes)
            else:
                found[sample.bean] = attributes.get("Value", attributes)
        pushed = self._server.client_metrics.receiver
        if pushed is not None:
            for sample in client_samples(pushed):
                found[sample.bean] = sample.attributes(now_ms)["Value"]
        return found

    async def serve(self, address: str) -> None:
        """Answers scrapes at `http://HOST:PORT`.

        Raises:
            ListenerError: that is no such address, or it cannot be had.
        """
        try:
            await self._responder.start(*parse_address(address))
        except OSError as error:
            raise cannot_listen(address, error) from error

    async def stop(self) -> None:
        """Answers no more."""
        await self._responder.stop()

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answers one request of HTTP.

        Raises:
            HttpError: there is nothing to tell.
        """
        if request.path == "/":
            return HttpAnswer(HTTPStatus.OK, [_START_PAGE])
        if request.path == "/explain":
            return self._explain(request.query)
        if request.path != "/metrics":
            raise HttpError(HTTPStatus.NOT_FOUND, "there are only /metrics and /explain here")
        is_open = _OPEN_METRICS in request.headers.get("accept", "")
        async with self._turn:
            if self._server.lifecycle.state is not BrokerState.RUNNING:
                raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "the broker does not run")
            out = Exposition(self._server.clock.monotonic_ms())
            await in_slices(self._collect(out))
            chunks = await in_slices(
                each.encode() for each in (out.open_metrics() if is_open else out.text())
            )
        return HttpAnswer(HTTPStatus.OK, chunks, OPEN_METRICS_TYPE if is_open else TEXT_TYPE)

    def _explain(self, query: dict[str, str]) -> HttpAnswer:
        """Says why nothing comes for a group, a topic, a client or a transaction."""
        if self._server.lifecycle.state is not BrokerState.RUNNING:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "the broker does not run")
        names = {kind: query.get(kind) for kind in KINDS}
        try:
            question = asked_about(**names)
        except ValueError as error:
            raise HttpError(HTTPStatus.BAD_REQUEST, str(error)) from None
        found = explain(Painter([self._server]).paint(question))
        text = f"{found}\n".encode("utf-8", "replace")
        return HttpAnswer(HTTPStatus.OK, [text])

    def _add_beans(self, out: Exposition) -> Iterator[None]:
        for sample in self._beans.samples():
            if sample is not None:
                out.add_bean(sample)
            yield

    def _collect(self, out: Exposition) -> Iterator[object]:
        shown = self._beans.shows_partitions
        pushed = self._server.client_metrics.receiver
        most = self._server.config["metrics.max.client.series"]
        return chain(
            self._add_beans(out),
            add_exporter_series(out, self._server, shows_partitions=shown),
            add_own_series(out, self._server, self._lags, shows_partitions=shown),
            () if pushed is None else add_client_series(out, pushed, most),
        )


async def in_slices(steps: Iterable[T]) -> list[T]:
    """Takes the steps, and lets others have the loop between slices of them."""
    results: list[T] = []
    loop = asyncio.get_running_loop()
    until = loop.time() + SLICE_SECONDS
    for step in steps:
        results.append(step)
        if loop.time() >= until:
            await asyncio.sleep(0)
            until = loop.time() + SLICE_SECONDS
    return results
