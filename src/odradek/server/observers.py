"""Several who observe requests, for a dispatcher that tells one."""

from typing import Final

from odradek.handlers.request import Request, RequestObserver


class Observers(RequestObserver):
    """Tells each of them, in their order."""

    def __init__(self, *observers: RequestObserver) -> None:
        self._observers: Final = observers

    def received(self, request: Request) -> None:
        """See `RequestObserver`."""
        for observer in self._observers:
            observer.received(request)

    def left(self, request: Request) -> None:
        """See `RequestObserver`."""
        for observer in self._observers:
            observer.left(request)

    def completed(self, request: Request) -> None:
        """See `RequestObserver`."""
        for observer in self._observers:
            observer.completed(request)
