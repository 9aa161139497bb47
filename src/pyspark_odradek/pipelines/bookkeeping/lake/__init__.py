"""Archives that are also lake tables: Delta's and Iceberg's."""
