"""SASL mechanisms, both ends of each: bytes in, bytes out."""
