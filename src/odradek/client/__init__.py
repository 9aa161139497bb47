"""The wire as a client sees it: any Kafka broker, ours or another.

`blocking` is for code that has no event loop and wants none: Spark's workers, tools, scripts.
It does not know how a broker works inside; it imports only protocol, records and the ground.
"""
