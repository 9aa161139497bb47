"""Settings as data: each table is a file here, one line for a setting.

`null` is a default that is not set, choices are separated by bars, and a column that a file does
not have, or a cell that is empty, says nothing. `unserved` says why the settings in
`without_effect.tsv` have no effect.
"""

import os
from collections.abc import Mapping

from odradek.config.definition import DynamicMode, Setting, SettingType, Value


def rows(table: str) -> list[Setting]:
    """The settings of a table, by the name of its file."""
    # Without pathlib, which a broker would import for this alone.
    path = os.path.join(os.path.dirname(__file__), f"{table}.tsv")
    with open(path, encoding="utf-8") as file:
        columns, *lines = (line.rstrip("\n").split("\t") for line in file)
    return [_setting(dict(zip(columns, cells, strict=True))) for cells in lines]


def _setting(cells: Mapping[str, str]) -> Setting:
    choices, also = cells.get("choices"), cells.get("also")
    kind = SettingType[cells["type"]]
    return Setting(
        cells["name"],
        kind,
        _default(kind, cells["default"]),
        cells["text"],
        at_least=_bound(cells, "at_least"),
        at_most=_bound(cells, "at_most"),
        also=int(also) if also else None,
        choices=tuple(choices.split("|")) if choices else (),
        ignore_case=bool(cells.get("ignore_case")),
        pattern=cells.get("pattern") or None,
        alone=cells.get("alone") or None,
        dynamic=DynamicMode[cells.get("dynamic") or "READ_ONLY"],
        is_hidden=bool(cells.get("is_hidden")),
    )


def _default(kind: SettingType, text: str) -> Value:
    """Not `Setting.parse`, which checks: compiling its patterns would take a start longer."""
    if text == "null":
        return None
    match kind:
        case SettingType.BOOLEAN:
            return text == "true"
        case SettingType.SHORT | SettingType.INT | SettingType.LONG:
            return int(text)
        case SettingType.DOUBLE:
            return float(text)
        case SettingType.LIST:
            return tuple(text.split(",")) if text else ()
        case _:
            return text


def _bound(cells: Mapping[str, str], column: str) -> float | None:
    text = cells.get(column)
    if not text:
        return None
    return float(text) if "." in text or "e" in text else int(text)
