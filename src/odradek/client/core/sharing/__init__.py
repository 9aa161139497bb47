"""Share groups as a client sees them: what was acquired, what is to be said of it, sessions."""
