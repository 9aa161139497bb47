"""The contents of an archive besides its records: the manifest, the groups, and lake tables."""
