"""Harnesses that put other people's programs under the load of our benchmarks."""
