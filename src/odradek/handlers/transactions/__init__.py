"""Transactions from both sides: a producer's, and the coordinators' and leaders'."""
