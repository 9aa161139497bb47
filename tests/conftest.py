"""What every test shares: the rules of `tools.suite.plugin`, and one Hypothesis profile,
deterministic and without deadlines."""

import os

from hypothesis import HealthCheck, settings
from tests.rounds import rounds

pytest_plugins = ["tools.suite.plugin"]

settings.register_profile(
    "odradek",
    deadline=None,
    derandomize=True,
    max_examples=int(os.environ.get("ODRADEK_EXAMPLES", rounds(100))),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("odradek")
