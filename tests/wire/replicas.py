"""How many replicas the topics of these tests have: `ODRADEK_WIRE_REPLICAS`, for runs against a
cluster whose brokers `ODRADEK_WIRE_BOOTSTRAP` names."""

import os

REPLICAS = int(os.environ.get("ODRADEK_WIRE_REPLICAS", "1"))
