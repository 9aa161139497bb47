"""Quotas of users and client ids, set, found and refused, beside an Apache Kafka."""

from collections.abc import Callable

import pytest
from tests.wire.differential.harness import Peer, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.of_three_too, pytest.mark.xdist_group("jvm")]

Check = Callable[[Scenario], None]
USER, CLIENT = "user", "client-id"
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
EXACT, DEFAULT, ANY = 0, 1, 2


def entry(entity: dict[str, str | None], **values: float | None) -> dict[str, object]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in values.items()
        ],
    }


def component(kind: str, match_type: int, match: str | None = None) -> dict[str, object]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


FILTERS = (
    [],
    [component(USER, EXACT, "quota-a")],
    [component(USER, DEFAULT)],
    [component(USER, ANY)],
    [component(CLIENT, ANY)],
    [component(USER, ANY), component(CLIENT, EXACT, "quota-c")],
)


def look(peer: Peer, version: int) -> None:
    for components in FILTERS:
        for strict in (False, True):
            peer.ask_eventually(
                "describe_client_quotas", version, components=components, strict=strict
            )


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_found_and_taken_away(version: int, same_answers: Check) -> None:
    """`kafka-configs --entity-type users` would show other quotas than it has set."""

    def scenario(peer: Peer) -> None:
        def alter(*entries: dict[str, object], validate_only: bool = False) -> None:
            peer.ask("alter_client_quotas", version, entries=entries, validate_only=validate_only)

        alter(entry({USER: "quota-a"}, **{PRODUCE: 1000.0, CONSUME: 2000.0}))
        look(peer, version)
        alter(entry({USER: None}, **{PRODUCE: 5.0}), entry({CLIENT: "quota-c"}, **{CONSUME: 6.0}))
        alter(entry({USER: "quota-a", CLIENT: "quota-c"}, **{CONSUME: 7.0}))
        alter(entry({USER: "quota-b"}, **{CONSUME: 7.0}), validate_only=True)
        look(peer, version)
        alter(
            entry({USER: "quota-a"}, **{PRODUCE: None}), entry({USER: "never"}, **{PRODUCE: None})
        )
        look(peer, version)
        # Mistakes
        alter(entry({}, **{PRODUCE: 1.0}))
        alter(entry({USER: ""}, **{PRODUCE: 1.0}))
        alter(entry({"group": "g"}, **{PRODUCE: 1.0}))
        alter(entry({USER: "quota-x"}, **{"no.such.rate": 1.0}))
        alter(entry({USER: "quota-x"}, **{PRODUCE: 0.5}))
        alter(entry({USER: "quota-x"}, **{PRODUCE: 1.5}))
        alter(entry({USER: "quota-x", "ip": "127.0.0.1"}, **{PRODUCE: 1.0}))
        look(peer, version)
        alter(
            *(entry({USER: name}, **{PRODUCE: None, CONSUME: None}) for name in ("quota-a", None)),
            entry({CLIENT: "quota-c"}, **{CONSUME: None}),
            entry({USER: "quota-a", CLIENT: "quota-c"}, **{CONSUME: None}),
        )
        look(peer, version)

    same_answers(scenario)
