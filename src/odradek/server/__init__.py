"""Builds and wires a broker, and runs it: as a process or inside another one.

The only floor that knows all others, and the only one that owns threads. It has no rules of Kafka:
those are on the floors below.
"""
