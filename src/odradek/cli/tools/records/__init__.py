"""Tools that write and read records: the console's, and those that measure."""
