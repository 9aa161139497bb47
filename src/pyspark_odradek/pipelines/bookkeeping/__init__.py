"""What an archive has beside its records: a manifest, the groups, and tables of a lake."""
