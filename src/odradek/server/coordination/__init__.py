"""Joins the coordinators of groups and transactions to a broker."""
