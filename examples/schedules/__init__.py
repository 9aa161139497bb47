"""Scheduled delivery with clients that know nothing of it."""
