"""The interface between the network and the handlers: one request, and the ways to answer it.

The network makes an `Exchange` for every complete frame and hands it to a `RequestHandler`. A
handler answers by calling exactly one of `send`, `no_op` or `close`, at once or at any later time
on the same event loop; the network keeps the answers of a connection in the order of its requests.
This module knows neither sockets nor APIs.
"""

from mypy_extensions import mypyc_attr

from odradek.model import KafkaPrincipal
from odradek.protocol.primitives import Buffer


@mypyc_attr(allow_interpreted_subclasses=True)
class Exchange:
    """One request of one connection, waiting for its answer.

    The owner of the frame, which lies in the connection's receive buffer:

    - The exchange owns it from `handle_frame` on. It may be written to (offsets are stamped in
      place), and nothing else touches it: the connection reads behind it, or not at all.
    - The exchange lets go of it by `release_frame`, or by being answered, whichever is first; and
      if it is `batched`, at the end of the socket read, when `RequestHandler.end_of_read` returns.
    - From then on the memory belongs to the network, which may receive the next frame into it.
      Asking for `frame` is a mistake and asserted; slices taken before must not be looked at.

    So a request that waits without its frame releases it as soon as it is decoded; one that needs
    it later (for records that are still to be appended) waits unbatched and keeps it.
    """

    def __init__(
        self,
        frame: memoryview,
        *,
        connection_id: str,
        client_host: str,
        client_port: int,
        listener_name: str,
        local_host: str,
        local_port: int,
        principal: KafkaPrincipal,
        received_ms: int,
    ) -> None:
        self._frame: memoryview | None = frame
        self.connection_id = connection_id
        self.client_host = client_host
        self.client_port = client_port
        self.listener_name = listener_name
        self.local_host = local_host
        self.local_port = local_port
        self.principal = principal  # the client's principal when the request came
        self.received_ms = received_ms  # monotonic: for request times, never for timestamps
        # Set by a handler that will answer at the end of the read: further frames of this
        # connection may be handled meanwhile, since all of them are answered in order.
        self.batched = False

    @property
    def frame(self) -> memoryview:
        """The request without its size, as long as the exchange owns it."""
        frame = self._frame
        assert frame is not None, f"a frame of {self.connection_id} is used after its release"
        return frame

    def release_frame(self) -> None:
        """Gives the frame's memory back to the network; a second call does nothing."""
        self._frame = None

    def answer_bytes(self) -> int:
        """The memory for a response, in bytes; a handler that can send less should keep to it."""
        raise NotImplementedError

    def throttle(self, throttle_time_ms: int) -> None:
        """Mutes the connection: no further frame of it is handled for so long.

        To be called before the answer, which leaves at once and tells the client the same.
        """
        raise NotImplementedError

    def send(self, buffers: list[Buffer]) -> None:
        """Answers with a response header and body; the network adds the size.

        The buffers belong to the network from here on and must not change any more.
        """
        raise NotImplementedError

    def send_part(self, buffers: list[Buffer], byte_count: int) -> None:
        """Answers like `send`, but the connection ends behind so many bytes of the answer."""
        raise NotImplementedError

    def no_op(self) -> None:
        """Ends the exchange without an answer (a produce with acks=0)."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the exchange by dropping the connection: its client broke the protocol."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestHandler:
    """The function the network calls. One per broker, always on the event loop, never blocking."""

    def handle_frame(self, exchange: Exchange) -> None:
        """Handles a request. Frames of one connection arrive strictly in order.

        When the exchange is neither answered nor `batched` on return, the network handles no
        further frame of that connection until it is answered.
        """
        raise NotImplementedError

    def end_of_read(self) -> None:
        """Ends a socket read: everything batched is carried out and answered now, or later.

        The exchanges release their frames as this returns.
        """
        raise NotImplementedError

    def connection_closed(self, connection_id: str) -> None:
        """Forgets the state of a connection."""
        raise NotImplementedError
