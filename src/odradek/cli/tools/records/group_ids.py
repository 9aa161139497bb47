"""The group of a console consumer, which a flag or a property may name."""

import argparse
from collections.abc import Mapping


def named_group(
    arguments: argparse.Namespace, config: Mapping[str, object], config_flag: str
) -> str | None:
    """The group that was named; `config_flag` is the old name of the flag for a file.

    Raises:
        ValueError: two were named.
    """
    named = {str(each) for each in (arguments.group, config.get("group.id")) if each is not None}
    if len(named) > 1:
        raise ValueError(
            "The group ids provided in different places (directly using '--group', via "
            f"'--consumer-property', or via '{config_flag}') do not match. Detected group ids: "
            f"'{arguments.group}', '{config['group.id']}'"
        )
    return next(iter(named), None)
