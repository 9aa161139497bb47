"""Record batches and message sets: the bytes that producers send, logs keep, consumers get.

Formats of magic 0, 1 and 2; codecs, checksums, builders and walkers. It reads and returns bytes
alone: no files, no clock, no topics. It imports only the ground.
"""
