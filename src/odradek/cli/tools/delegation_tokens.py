"""`odradek delegation-tokens`: manages delegation tokens, as `kafka-delegation-tokens.sh` does."""

import argparse
import base64
import binascii
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from odradek.cli.tools.connection import (
    add_actions,
    add_connection,
    add_format,
    client_config,
    print_json,
    require,
    run_async,
    the_action,
)
from odradek.client import Admin, DelegationToken
from odradek.errors import text_of

_ACTIONS: Final = {
    "create": "make a token",
    "renew": "let a token live on",
    "expire": "end a token",
    "describe": "show tokens, all that one may see or those of owners",
}
_PERIODS: Final = {
    "max-life-time-period": "how long a new token lives at most; -1: as long as brokers allow",
    "renew-time-period": "for how long to renew; -1: as long as brokers allow",
    "expiry-time-period": "when to end, from now; -1: at once",
}
_ROW: Final = "{:<15} {:<30} {:<15} {:<15} {:<25} {:<15} {:<15} {:<15}"
_TITLES: Final = (
    *("TOKENID", "HMAC", "OWNER", "REQUESTER"),
    *("RENEWERS", "ISSUEDATE", "EXPIRYDATE", "MAXDATE"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_connection(parser)
    add_format(parser)
    add_actions(parser, _ACTIONS)
    for name, text in _PERIODS.items():
        parser.add_argument(f"--{name}", type=int, default=-1, metavar="MS", help=text)
    parser.add_argument("--hmac", metavar="BASE64", help="the password of a token")
    for name in ("owner", "renewer"):
        parser.add_argument(f"--{name}-principal", action="append", metavar="User:NAME")


def run(arguments: argparse.Namespace) -> int:
    """Creates, renews, expires or describes."""
    require(arguments, "bootstrap-server")
    action = the_action(arguments, list(_ACTIONS))
    if action in ("renew", "expire"):
        require(arguments, "hmac")

    async def work() -> int:
        async with Admin(config=client_config(arguments)) as admin:
            if action == "describe":
                _show(arguments, await admin.describe_delegation_tokens(arguments.owner_principal))
            elif action == "create":
                _show(arguments, [await _create(admin, arguments)])
            else:
                await _change(admin, arguments, action)
        return 0

    def say(error: Exception) -> None:
        print(f"Error while executing delegation token command : {text_of(error)}", file=sys.stderr)

    return run_async(work, say)


async def _create(admin: Admin, arguments: argparse.Namespace) -> DelegationToken:
    owners = arguments.owner_principal or [None]
    if len(owners) > 1:
        raise ValueError("a token has one owner")
    return await admin.create_delegation_token(
        arguments.renewer_principal or (),
        owner=owners[0],
        max_lifetime_ms=arguments.max_life_time_period,
    )


async def _change(admin: Admin, arguments: argparse.Namespace, action: str) -> None:
    try:
        password = base64.b64decode(arguments.hmac, validate=True)
    except binascii.Error:
        raise ValueError("--hmac is no base64") from None
    if action == "renew":
        until_ms = await admin.renew_delegation_token(password, arguments.renew_time_period)
    else:
        until_ms = await admin.expire_delegation_token(password, arguments.expiry_time_period)
    if arguments.output == "json":
        print_json({"expiry_ms": until_ms})
    else:
        print(f"Completed {action} operation. New expiry date : {_date(until_ms)}")


def _show(arguments: argparse.Namespace, tokens: Iterable[DelegationToken]) -> None:
    if arguments.output == "json":
        print_json([_as_json(each) for each in tokens])
        return
    print(_ROW.format(*_TITLES))
    for each in tokens:
        renewers = ",".join(map(str, each.renewers))
        dates = map(_date, (each.issue_ms, each.expiry_ms, each.max_ms))
        people = (str(each.owner), str(each.requester), renewers)
        print(_ROW.format(each.token_id, each.password, *people, *dates).rstrip())


def _as_json(token: DelegationToken) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "hmac": token.password,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(each) for each in token.renewers],
        "issue_ms": token.issue_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
    }


def _date(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M")
