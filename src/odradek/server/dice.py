"""The dice of a broker: its ids, and where the first replica of a topic lands, come from them.

Floors below are handed what they need of them (`random_bytes`, `random_below`, `new_uuid`). With a
seed they fall the same way each time, so a test sees the same ids; without one they are the
operating system's, which nobody can guess.
"""

from random import Random, SystemRandom
from typing import Any
from uuid import UUID


def dice(seed: int | str | None) -> Random:
    """Dice that fall as the seed says; None for those of the operating system."""
    return SystemRandom() if seed is None else Random(seed)


def random_uuid(dice: Random) -> UUID:
    """A random id (version 4)."""
    return UUID(bytes=dice.randbytes(16), version=4)


def dice_state(dice: Random) -> Any:
    """Where dice with a seed are; None for those of the operating system."""
    return None if isinstance(dice, SystemRandom) else dice.getstate()


def dice_at(state: Any) -> Random:
    """Dice that fall from there on."""
    if state is None:
        return SystemRandom()
    dice = Random()
    version, numbers, rest = state
    dice.setstate((version, tuple(numbers), rest))
    return dice
