"""What the project costs, measured beside a peer; never run by the tests."""
