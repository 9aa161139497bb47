"""A consumer's subscription and commits, and how its records are handed out."""
