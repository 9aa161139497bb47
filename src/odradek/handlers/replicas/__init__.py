"""Replicas and leaders: the controller's requests, elections, moves."""
