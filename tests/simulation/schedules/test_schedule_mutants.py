"""Breaks the release of schedules on purpose; the simulation of a cluster has to find it."""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation

DELIVERY = "replication/schedule/delivery.py"
RELEASER = "replication/schedule/releaser.py"
STATE = "replication/schedule/state.py"

MUTATIONS = {
    "a new leader leaves alone what was under way": Mutation(
        RELEASER,
        "        for release in list(self.state.in_flight.values()):\n"
        "            self._delivery.send(release)\n",
        "",
    ),
    "a new leader is another producer": Mutation(
        DELIVERY,
        "producer_id=release.producer_id, producer_epoch=0",
        "producer_id=release.producer_id + 1000 * self._log.leader_epochs.latest_epoch,"
        " producer_epoch=0",
    ),
    "a record may go when its mark is not committed": Mutation(
        RELEASER,
        "        self._services.replicas.append_records([request])\n",
        "        self._services.replicas.append_records([request])\n"
        "        for mark in marks:\n"
        "            self.state._apply(mark)\n",
    ),
    "the clock of the leader before decides": Mutation(
        DELIVERY, "        if wait_ms > 0:\n", "        if wait_ms > 1 << 60:\n"
    ),
    "what was due once goes, wherever the clock is now": Mutation(
        RELEASER,
        "            if self._remaining_ms(pending) > 0:\n                heappop",
        "            if self._remaining_ms(pending) > 1 << 60:\n                heappop",
    ),
    "only what is picked is asked whether it has expired": Mutation(
        DELIVERY, "(wait_ms > 0 or release.has_expired(now_ms))", "wait_ms > 0"
    ),
    "what has expired is given up, though its target may have it": Mutation(
        DELIVERY,
        "        if not release.is_in_doubt and (wait_ms > 0",
        "        if (wait_ms > 0",
    ),
    "a refusal settles what was in doubt": Mutation(
        DELIVERY,
        "release.is_in_doubt = was_in_doubt and error.code not in _SETTLED",
        "release.is_in_doubt = False",
    ),
    "a new leader takes it that nothing was sent": Mutation(
        STATE, "        self.is_in_doubt = True\n", "        self.is_in_doubt = False\n"
    ),
    "whatever is not answered left nothing": Mutation(
        DELIVERY,
        "            if isinstance(error, NotAppended):\n",
        "            if error is not None:\n",
    ),
    "what was released is forgotten while a transaction has something older": Mutation(
        STATE, "            self._end_key(key, pending.offset)\n", ""
    ),
    "what was cancelled is forgotten while a transaction has something older": Mutation(
        STATE, "        self._end_key(key, record.offset)\n", ""
    ),
    "what is given back comes before what has taken its place": Mutation(
        STATE,
        "            if is_newest:\n",
        "            if is_newest or True:\n",
    ),
}
MUTANTS = Mutants(
    MUTATIONS, ["tests/simulation/schedules/test_schedules.py"], ODRADEK_SCHEDULE_SEEDS="150"
)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)
