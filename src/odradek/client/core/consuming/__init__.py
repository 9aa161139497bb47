"""A consumer's side: where it stands, what it fetches, how records are read out of it."""
