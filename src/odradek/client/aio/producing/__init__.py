"""A producer's sender, its transactions and the listeners to a record's end."""
