"""Connections wait for each other, and the control plane for nobody."""

from tests.unit.network.fakes import FakeTransport, Harness, framed

from odradek.network.connection import Connection


class Site(Harness):
    """Several connections of clients, and one over the control plane, all on one loop."""

    def __init__(self, clients: int, *, has_control_plane: bool = True) -> None:
        super().__init__(has_control_plane=has_control_plane)
        self.clients = [self.connect(FakeTransport()) for _ in range(clients)]
        control = self.make_context(1 << 26, None)
        transport = FakeTransport()
        self.control = Connection(control, transport, "control-1", "there", 6, "here", 9093)

    def has_come(self, connection: Connection, data: bytes) -> None:
        """Bytes that the loop has found on a socket."""
        room = connection.get_buffer()
        room[: len(data)] = data
        connection.buffer_updated(len(data))

    def run(self) -> None:
        """Turns of the loop until nothing is left to do."""
        while self.soon:
            self.turn()


def test_many_slow_requests_of_one_client_leave_the_loop_to_the_others() -> None:
    """A connection that pipelines would stop all others for as long as it likes."""
    site = Site(1, has_control_plane=False)
    greedy, modest = site.clients[0], site.connection
    site.has_come(greedy, framed(*[b"T%d" % index for index in range(20)]))
    handled_first = len(site.handler.handled)
    site.has_come(modest, framed(b"modest"))
    assert handled_first == 2
    assert site.handler.handled[2] == b"modest"
    site.run()
    assert len(site.handler.handled) == 21
    assert site.handler.handled[-1] == b"T19"


def test_the_control_plane_waits_for_one_slice_of_the_clients() -> None:
    """Under load a broker would not hear that it leads no more, and others would wait for it."""
    site = Site(50)
    for index, client in enumerate(site.clients):
        site.has_come(client, framed(b"T%d" % index))
    assert len(site.handler.handled) == 3
    site.turn()
    site.has_come(site.control, framed(b"control"))
    assert site.handler.handled[3] == b"control"
    site.run()
    clients = [body for body in site.handler.handled if body != b"control"]
    assert clients == [b"T%d" % index for index in range(50)]


def test_in_every_turn_the_clients_go_on() -> None:
    """A busy control plane would stop the clients for good."""
    site = Site(9)
    for client in site.clients:
        site.has_come(client, framed(b"T"))
    turns = 0
    while len(site.handler.handled) - turns < 9:
        turns += 1
        site.has_come(site.control, framed(b"T"))
        site.turn()
    assert turns <= 6


def test_a_client_that_waits_reads_no_further_than_its_buffer() -> None:
    """Waiting would cost as much memory as clients like to send."""
    site = Site(3)
    site.has_come(site.clients[0], framed(b"T"))
    site.has_come(site.clients[1], framed(b"T"))
    site.has_come(site.clients[2], framed(b"T"))
    waiting = framed(*[b"e" * 1000] * 2000)
    rest = site.receive_while_reading(waiting)
    assert rest
    assert not site.transport.reading
    site.run()
    assert site.transport.reading
    site.receive(rest)
    site.run()
    assert len(site.handler.handled) == 2003


def test_one_that_ends_while_it_waits_is_forgotten() -> None:
    """Its frames would be handled for nobody."""
    site = Site(4)
    for client in site.clients:
        site.has_come(client, framed(b"T"))
    site.clients[3].connection_lost()
    site.run()
    assert len(site.handler.handled) == 3
