"""A consumer's side: positions, fetched chunks, and reading records out of them."""
