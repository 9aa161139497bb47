"""`python -m examples.replication FILE`: runs the story and draws it."""

import sys

from examples.replication.picture import draw
from examples.replication.story import tell

_USAGE = "usage: python -m examples.replication FILE.svg"


def main(arguments: list[str]) -> int:
    """Writes the picture; the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        with open(arguments[0], "w", encoding="utf-8") as file:
            file.write(draw(tell()))
    except OSError as error:
        print(f"cannot write {arguments[0]}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
