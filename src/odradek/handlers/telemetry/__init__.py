"""Receives clients' own metrics (KIP-714)."""
