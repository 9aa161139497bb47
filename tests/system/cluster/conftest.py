"""Faults of a cluster of processes run only where they are asked for.

With anything else on two cores some of them fail now and then: six processes share what is left,
and a session time-out of a second or two passes without a fault. `ODRADEK_ROUNDS=2` runs them.
"""

import os

collect_ignore = [] if "ODRADEK_ROUNDS" in os.environ else ["test_faults.py"]
