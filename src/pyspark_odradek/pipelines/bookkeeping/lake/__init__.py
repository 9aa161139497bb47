"""Archives that are tables of a lake as well: Delta's and Iceberg's."""
