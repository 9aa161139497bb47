"""What every test shares: one Hypothesis profile, deterministic and without deadlines."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "odradek",
    deadline=None,
    derandomize=True,
    max_examples=int(os.environ.get("ODRADEK_EXAMPLES", "100")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("odradek")
