"""Clients' own metrics (KIP-714), asked for and taken."""
