"""How tests and the programs of old clients hand records to each other, whatever their language.

A record is a line "key value", each in base64 after a "+", or "-" for null. The programs that find
an old `kafka` import this by its bare name: they run in this folder.
"""

import base64
import sys

Pairs = list[tuple[bytes | None, bytes | None]]


def read_records() -> Pairs:
    return [tuple(map(decode, line.split())) for line in sys.stdin]


def decode(field: str) -> bytes | None:
    return None if field == "-" else base64.b64decode(field[1:])


def encode(field: bytes | None) -> str:
    return "-" if field is None else "+" + base64.b64encode(field).decode()
