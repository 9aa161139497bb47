"""Builds and wires a broker, and runs it: as a process or inside another one.

The only floor that knows all others, and the only one that owns threads. It holds no rule of
Kafka's: whoever looks for one is on the wrong floor.
"""
