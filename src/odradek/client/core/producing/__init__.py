"""A producer's side: from a record to a batch, and its result."""
