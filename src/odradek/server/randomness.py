"""The randomness of a broker: its ids, and where the first replica of a topic lands, come from it.

Floors below are handed what they need of them (`random_bytes`, `random_below`, `new_uuid`). With a
seed they are the same each time, so a test sees the same ids; without one they are the
operating system's, which nobody can guess.
"""

from random import Random, SystemRandom
from typing import Any
from uuid import UUID


def rng_of(seed: int | str | None) -> Random:
    """Randomness that a seed repeats; None for that of the operating system."""
    return SystemRandom() if seed is None else Random(seed)


def random_uuid(rng: Random) -> UUID:
    """A random id (version 4)."""
    return UUID(bytes=rng.randbytes(16), version=4)


def rng_state(rng: Random) -> Any:
    """The state of seeded randomness; None for that of the operating system."""
    return None if isinstance(rng, SystemRandom) else rng.getstate()


def rng_at(state: Any) -> Random:
    """Randomness that continues from there."""
    if state is None:
        return SystemRandom()
    rng = Random()
    version, numbers, rest = state
    rng.setstate((version, tuple(numbers), rest))
    return rng
