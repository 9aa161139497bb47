"""Record batches and message sets: the bytes that producers send, logs keep, consumers get.

Formats of magic 0, 1 and 2; codecs, checksums, builders and walkers. Bytes in, facts or bytes
out: no files, no clock, no topics. Imports only the ground.
"""
