"""Commands made for people, in the manner of kcat and rpk, beside the tools that Kafka has.

They read and write any Kafka by our own client. Tables and lines are for the eye, coloured on a
terminal only; `--format json` is for programs.
"""
