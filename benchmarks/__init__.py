"""The costs of the project, measured beside a peer; never run by the tests."""
