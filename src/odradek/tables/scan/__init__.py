"""Reads ranges, from a broker or from its files in place, and decodes them."""
