"""The users of SCRAM that a broker is started with, so that somebody can log in."""

from collections.abc import Callable, Sequence
from functools import partial

from odradek.controller import Controller
from odradek.errors import BrokerError
from odradek.security.scram_users import NewUser, new_users
from odradek.server.awaiting import outcome
from odradek.server.errors import StartError


async def add_users(
    controller: Controller, users: Sequence[NewUser], randbytes: Callable[[int], bytes]
) -> None:
    """Adds users; one that has changed its password since keeps the new one.

    Raises:
        StartError: they cannot be kept.
    """
    try:
        await outcome(partial(controller.alter_users, partial(new_users, users, randbytes)))
    except BrokerError as error:
        raise StartError(f"the users of SCRAM cannot be kept: {error}") from error
