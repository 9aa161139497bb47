"""The contents of an archive beside its records: a manifest, the groups, and tables of a lake."""
