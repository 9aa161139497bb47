"""The settings that every test shares: the rules of `tools.suite.plugin`, and one Hypothesis
profile, deterministic and without deadlines. It tries 30 examples of each property, and 100 or more
in `./test --all` and with `--rounds`.
"""

import os

from hypothesis import HealthCheck, settings
from tests.rounds import rounds

pytest_plugins = ["tools.suite.plugin"]

EXAMPLES = rounds(100) if "ODRADEK_ROUNDS" in os.environ else 30

settings.register_profile(
    "odradek",
    deadline=None,
    derandomize=True,
    max_examples=int(os.environ.get("ODRADEK_EXAMPLES", EXAMPLES)),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("odradek")
