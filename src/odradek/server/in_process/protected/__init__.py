"""Security in one word, for a broker inside a test: authority, users, tokens, clients' settings."""
