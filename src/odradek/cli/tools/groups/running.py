"""Runs the actions of the commands for groups, and prints how they failed."""

import argparse
import sys
from collections.abc import Awaitable, Callable

from odradek.cli.tools.connection import NO_ADMIN, NoAddress, NoFile, client_config, run_async
from odradek.cli.tools.groups.offset_resets import WrongUsage
from odradek.cli.tools.wording.java_names import java_text
from odradek.client import Admin
from odradek.errors import BrokerError, text_of

Action = Callable[[Admin, argparse.Namespace], Awaitable[int]]


def run_action(
    kind: str,
    action: Action,
    arguments: argparse.Namespace,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Runs an action on groups of this kind and returns the status, which is 0 if a broker refuses,
    or none answers: the output has the error. `check` may refuse the arguments, but only once the
    client's settings are known to be right."""
    status = 0

    def say(error: Exception) -> None:
        nonlocal status
        if isinstance(error, WrongUsage):
            print(text_of(error), file=sys.stderr)
            status = 1
        else:
            print(f"\nError: Executing {kind} command failed due to {_reason(error)}")

    async def work() -> int:
        config = client_config(arguments)
        check()
        config.setdefault("request.timeout.ms", arguments.timeout)
        async with Admin(config=config) as admin:
            return await action(admin, arguments)

    run_async(work, say)
    return status


def words_of(text: str | None) -> list[str]:
    """Splits a list at its commas and capitalizes each word, as states and types are written."""
    return [word.strip().capitalize() for word in (text or "").split(",") if word.strip()]


def _reason(error: Exception) -> str:
    if isinstance(error, NoAddress):
        print(error, file=sys.stderr)
        return NO_ADMIN
    if isinstance(error, NoFile):
        return f"java.nio.file.NoSuchFileException: {error.path}"
    return java_text(error) if isinstance(error, BrokerError) else text_of(error)
