"""Codecs written by hand, of the messages that a broker meets most."""
