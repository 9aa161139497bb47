"""`python -m odradek` is the command `odradek`."""

import sys

from odradek.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
