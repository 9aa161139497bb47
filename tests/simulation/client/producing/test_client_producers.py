"""Producers of ours through everything that networks, brokers and their own users do.

See `client_producers` for the trouble and for what must always hold. `ODRADEK_PRODUCER_SEEDS` runs
other seeds (`500`, or `500:700`), none of them slow. Some mutants show what they notice.
"""

from pathlib import Path

import pytest
from tests.mutants import Mutants, Mutation
from tests.rounds import slow_behind
from tests.simulation.client.producing.client_producers import play

# A mutant was found by the first alone (a record that expires before it leaves is none of its
# transaction). The others: a call after the end of a producer whose commit was not answered; a
# batch that was overtaken, once the log had refused its place, by one that is or may be in it; a
# commit amid which the producer was closed.
FOUND = [97, 108, 1378, 13068, 4874]

SELF_FENCING = "records and offsets ask for an epoch each"
MODEL = "tests/simulation/client/producing/test_client_producers.py"
MUTATIONS = {
    "a record that expires before it leaves is none of its transaction": Mutation(
        "client/aio/producing/sender.py",
        "        self._transactions.lost_batch(error, was_sent=bool(batch.attempts))\n",
        "        if batch.attempts:\n"
        "            self._transactions.lost_batch(error, was_sent=True)\n",
    ),
    "what was overtaken is sent again": Mutation(
        "client/core/producing/accumulator.py",
        "        last = max([queue.last_done, *undecided])\n",
        "        last = max([(0, 0), *undecided])\n",
    ),
    "what may be in the log is numbered anew": Mutation(
        "client/core/producing/accumulator.py",
        "        return self.unanswered > 0 or self.is_perhaps_in_log\n",
        "        return self.unanswered > 0\n",
    ),
    "a commit that waits for another goes on though that has failed": Mutation(
        "client/aio/producing/transactions.py",
        "            # Who was waited for may have failed it.\n"
        "            self.life.move(TransactionState.COMMITTING if commit"
        " else TransactionState.ABORTING)\n",
        "",
    ),
    "a commit does not wait for offsets that were begun": Mutation(
        "client/aio/producing/transacting.py",
        "            with self._about_to_enter():\n"
        "                await self._transactions.send_offsets(with_metadata(offsets), member)\n",
        "            await self._transactions.send_offsets(with_metadata(offsets), member)\n",
    ),
    SELF_FENCING: Mutation(
        "client/aio/producing/transactions.py",
        "        async with self._identifying:\n"
        "            if self.life.error is not None:\n"
        "                raise self.life.error\n",
        "        if True:\n"
        "            if self.life.error is not None:\n"
        "                raise self.life.error\n",
    ),
    "what failed is numbered anew with what is given up": Mutation(
        "client/core/producing/accumulator.py",
        "        if batch.is_numbered and not queue.has_numbered:\n"
        "            self._mark_gap(queue)\n",
        "        if batch.is_numbered:\n"
        "            self._mark_gap(queue)\n"
        "            for each in queue.failed:\n"
        "                each.base_sequence = NO_SEQUENCE\n",
    ),
}
MUTANTS = Mutants(
    MUTATIONS,
    [
        "tests/simulation/client/producing/test_client_sequences.py",
        "tests/simulation/client/producing/test_client_transactions.py",
        MODEL,
    ],
    ODRADEK_PRODUCER_SEEDS="60",
)


@pytest.mark.parametrize("seed", slow_behind(8, "ODRADEK_PRODUCER_SEEDS", 40))
def test_producers_keep_their_word(seed: int) -> None:
    """Fails when a record is in the log twice, in another order, or not where it was said to be;
    when a transaction is committed in part, or against its word; when a producer fences itself;
    when anything has no end, or ends later than `delivery.timeout.ms`, or a task or a connection is
    left."""
    hold(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_what_was_found_once_is_not_found_again(seed: int) -> None:
    """Fails when a finding comes back."""
    hold(seed)


def hold(seed: int) -> None:
    story = play(seed)
    logs = story.brokers.logs.values()
    assert all(log.entries or log.lost for log in logs), "something was written"
    outcomes = [each.outcomes for each in story.brokers.transactions.values()]
    assert any(any(each.values()) for each in outcomes), "something was committed"


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS.names)
def test_a_mutant_is_found(tmp_path: Path, name: str) -> None:
    """The simulation would let somebody break just this."""
    MUTANTS.hold(name, tmp_path)


@pytest.mark.slow
def test_the_model_alone_finds_a_producer_that_fences_itself(tmp_path: Path) -> None:
    """The model's coordinator would leave a producer its epoch whose transaction is open."""
    alone = MUTATIONS[SELF_FENCING]._replace(tests=[MODEL])
    Mutants({SELF_FENCING: alone}, ODRADEK_PRODUCER_SEEDS="60").hold(SELF_FENCING, tmp_path)
