"""Ranges are read, from a broker or from files where they lie, and decoded."""
