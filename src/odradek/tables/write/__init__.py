"""Records go to topics in batches, and exactly once where that is asked for."""
