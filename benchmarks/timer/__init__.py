"""The timer benchmark: what a pending timer costs to start, to cancel, to let expire, to keep."""
