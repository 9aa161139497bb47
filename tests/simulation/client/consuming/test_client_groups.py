"""Consumers of ours as members of a group, through everything that networks and crashes do.

See `client_groups` for the trouble and for what must always hold. `ODRADEK_MEMBER_SEEDS` runs other
seeds of every kind of group (`500`, or `500:700`).
"""

import pytest
from tests.rounds import slow_behind
from tests.simulation.client.consuming.client_groups import play

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}
NEWER = {"group.protocol": "consumer"}
KINDS: dict[str, list[dict[str, object]]] = {
    "range": [{"partition.assignment.strategy": "range"}],
    "roundrobin": [{"partition.assignment.strategy": "roundrobin"}],
    "sticky": [{"partition.assignment.strategy": "sticky"}],
    "cooperative-sticky": [COOPERATIVE],
    "consumer": [NEWER],
    "both-protocols": [NEWER, COOPERATIVE],
}


@pytest.mark.parametrize("seed", slow_behind(2, "ODRADEK_MEMBER_SEEDS", 40))
@pytest.mark.parametrize("kind", KINDS)
def test_a_group_survives_trouble_and_settles(kind: str, seed: int) -> None:
    """Fails when two members read a partition in one generation, something is passed over or read
    in another order, a commit goes back, or says what nobody has read, when the group does not
    settle, or a member leaves a task or a connection behind."""
    story = play(seed, KINDS[kind])
    assert all(story.read.values()), "something was read"
