"""Settings: alterations, descriptions, those that change at run time."""
