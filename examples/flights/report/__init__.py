"""The page that a run leaves: one file, no script, no font and no picture from elsewhere."""
