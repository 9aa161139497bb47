"""Kafka's own command line: the flags, columns and messages of Apache Kafka 4.3's tools.

Scripts parse what these print, so for the same state they print the same on standard output, ids
and times apart; `--format json` is ours. Wrong usage ends with status 2, whatever the tool.
"""
