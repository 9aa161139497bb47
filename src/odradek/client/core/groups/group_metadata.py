"""The identity of a consumer in its group, which a transaction needs to commit its offsets."""

from typing import NamedTuple


class GroupMetadata(NamedTuple):
    """A member of a group in a generation (or member epoch); outside of any, only the group."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    instance_id: str | None = None


def checked_group(group: object) -> GroupMetadata:
    """Checks the group argument of a transaction.

    Raises:
        TypeError: it is something else, such as a name.
    """
    if isinstance(group, GroupMetadata):
        return group
    raise TypeError(
        f"group is what Consumer.group_metadata() gives, or a GroupMetadata, and not {group!r}"
    )
