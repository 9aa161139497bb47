"""The sparse files beside a segment: offset, time and transaction index."""
