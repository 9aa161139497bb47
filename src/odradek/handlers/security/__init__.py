"""SASL requests that come after the login, and the users of SCRAM."""
