"""Delegation tokens, and the users of SCRAM: the means by which others log in."""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.client.aio.admin.base import AdminBase, outcome
from odradek.client.apis import (
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
    ClientApi,
)
from odradek.client.core.admin_types import DelegationToken, ScramPassword
from odradek.client.core.listed import each_once
from odradek.client.errors import KafkaError, raise_for
from odradek.model import KafkaPrincipal
from odradek.protocol import messages
from odradek.security.principal import parse_principal
from odradek.security.sasl import scram

BROKERS_CHOICE: Final = -1
_SALT_BYTES: Final = 20
_NUMBERS: Final = {name: number for number, name in enumerate(scram.SCRAM_MECHANISMS, 1)}
_NAMES: Final = {number: name for name, number in _NUMBERS.items()}


class TokenCalls(AdminBase):
    """Calls about delegation tokens and users of SCRAM."""

    async def create_delegation_token(
        self,
        renewers: Sequence[str] = (),
        *,
        owner: str | None = None,
        max_lifetime_ms: int = BROKERS_CHOICE,
    ) -> DelegationToken:
        """Makes a token by which others log in as the caller, or as `owner` (`User:alice`).

        Raises:
            KafkaError: the caller may not, or the brokers give no tokens.
        """
        principal = None if owner is None else parse_principal(owner)
        values = {
            "owner_principal_type": None if principal is None else principal.principal_type,
            "owner_principal_name": None if principal is None else principal.name,
            "renewers": [_fields(parse_principal(each)) for each in renewers],
            "max_lifetime_ms": max_lifetime_ms,
        }
        # Not tried again: the first answer may have been lost, and the token made.
        answer = await self._cluster.call(None, CREATE_DELEGATION_TOKEN, values)
        raise_for(int(answer.error_code))
        made = _principal(answer)
        return DelegationToken(
            answer.token_id,
            answer.hmac,
            made,
            _principal(answer, "token_requester_") if _tells_requester(answer) else made,
            tuple(parse_principal(each) for each in renewers),
            messages.epoch_milliseconds(answer.issue_timestamp),
            messages.epoch_milliseconds(answer.expiry_timestamp),
            messages.epoch_milliseconds(answer.max_timestamp),
        )

    async def renew_delegation_token(self, hmac: bytes, period_ms: int = BROKERS_CHOICE) -> int:
        """Renews a token; returns its new expiry, in milliseconds since 1970.

        Raises:
            KafkaError: there is no such token, it has expired, or is not the caller's.
        """
        values = {"hmac": hmac, "renew_period_ms": period_ms}
        return await self._until(RENEW_DELEGATION_TOKEN, values)

    async def expire_delegation_token(self, hmac: bytes, period_ms: int = BROKERS_CHOICE) -> int:
        """Ends a token after a period, at once if that is negative; returns its new expiry.

        Raises:
            KafkaError: as `renew_delegation_token`.
        """
        values = {"hmac": hmac, "expiry_time_period_ms": period_ms}
        return await self._until(EXPIRE_DELEGATION_TOKEN, values)

    async def _until(self, api: ClientApi, values: Mapping[str, object]) -> int:
        async def ask(node_id: int | None, _: list[ClientApi]) -> dict[ClientApi, int | KafkaError]:
            answer = await self._cluster.call(node_id, api, values)
            until_ms = messages.epoch_milliseconds(answer.expiry_timestamp)
            return {api: outcome(answer.error_code, until_ms)}

        found = (await self._retrying_change([api], self._anybody, ask))[api]
        if isinstance(found, KafkaError):
            raise found
        return found

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """Describes the tokens of owners, or all that the caller may see.

        Raises:
            KafkaError: the brokers give no tokens, or not to this caller.
        """
        wanted = None if owners is None else [_fields(parse_principal(each)) for each in owners]

        async def attempt() -> list[DelegationToken]:
            values = {"owners": wanted}
            answer = await self._cluster.call(None, DESCRIBE_DELEGATION_TOKEN, values)
            raise_for(int(answer.error_code))
            return [_token(each) for each in answer.tokens]

        return await self._cluster.retrying(attempt)

    # --- users of SCRAM -------------------------------------------------------------------------

    async def describe_scram_users(
        self, names: Iterable[str] = ()
    ) -> dict[str, dict[str, int] | KafkaError]:
        """Returns the mechanisms of users with their iterations; without names of all users.

        Raises:
            KafkaError: the caller may not.
        """
        asked = [{"name": each} for each in each_once(names)]

        async def attempt() -> dict[str, dict[str, int] | KafkaError]:
            values = {"users": asked or None}
            answer = await self._cluster.call(None, DESCRIBE_USER_SCRAM_CREDENTIALS, values)
            raise_for(int(answer.error_code), answer.error_message)
            return {
                each.user: outcome(
                    each.error_code,
                    {
                        _NAMES.get(int(info.mechanism), str(info.mechanism)): info.iterations
                        for info in each.credential_infos
                    },
                    each.error_message,
                )
                for each in answer.results
            }

        return await self._cluster.retrying(attempt)

    async def alter_scram_users(
        self,
        passwords: Iterable[ScramPassword] = (),
        delete: Iterable[tuple[str, str]] = (),
    ) -> dict[str, Any]:
        """Sets users' passwords, and removes them by user and mechanism; the result is None for
        each user, or the `KafkaError` of its refusal. Passwords are salted here, no broker sees
        them."""
        deletions = [{"name": name, "mechanism": _NUMBERS[mechanism]} for name, mechanism in delete]
        upsertions = [_upsertion(each) for each in passwords]
        names = [str(each["name"]) for each in (*deletions, *upsertions)]

        async def ask(node_id: int | None, pending: list[str]) -> dict[str, Any]:
            values = {
                "deletions": [each for each in deletions if each["name"] in pending],
                "upsertions": [each for each in upsertions if each["name"] in pending],
            }
            answer = await self._cluster.call(node_id, ALTER_USER_SCRAM_CREDENTIALS, values)
            return {
                each.user: outcome(each.error_code, None, each.error_message)
                for each in answer.results
            }

        return await self._retrying_change(names, self._controller, ask)


def _upsertion(user: ScramPassword) -> dict[str, object]:
    salt = secrets.token_bytes(_SALT_BYTES)
    return {
        "name": user.name,
        "mechanism": _NUMBERS[user.mechanism],
        "iterations": user.iterations,
        "salt": salt,
        "salted_password": scram.salted_password(
            user.mechanism, user.password, salt, user.iterations
        ),
    }


def _token(fields: Any) -> DelegationToken:
    owner = _principal(fields)
    return DelegationToken(
        fields.token_id,
        fields.hmac,
        owner,
        _principal(fields, "token_requester_") if _tells_requester(fields) else owner,
        tuple(_principal(each) for each in fields.renewers),
        fields.issue_timestamp,
        fields.expiry_timestamp,
        fields.max_timestamp,
    )


def _tells_requester(fields: Any) -> bool:
    return hasattr(fields, "token_requester_principal_name")


def _principal(fields: Any, prefix: str = "") -> KafkaPrincipal:
    return KafkaPrincipal(
        getattr(fields, f"{prefix}principal_type"), getattr(fields, f"{prefix}principal_name")
    )


def _fields(principal: KafkaPrincipal) -> dict[str, object]:
    return {"principal_type": principal.principal_type, "principal_name": principal.name}
