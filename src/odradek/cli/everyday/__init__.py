"""Commands made for people, like those of kcat and rpk, in addition to Kafka's own tools.

They read and write any Kafka through our own client. Tables and lines are for people, coloured on a
terminal only; `--format json` is for programs.
"""
