"""Handlers about the cluster: its brokers, controller and features."""
