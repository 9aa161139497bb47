"""Kafka's own command line: the flags, columns and messages of Apache Kafka 4.3's tools.

Scripts parse their output, so for the same state they print the same on standard output, except for
ids and times; `--format json` is ours. Wrong usage ends with status 2, whatever the tool.
"""
