"""Writes keys and values into JSON, which has no bytes."""

import base64
from typing import Any


def named_text(name: str, data: bytes | None) -> dict[str, Any]:
    """Text under its name; other bytes in base64, under a name that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
