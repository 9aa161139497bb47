"""Share groups on the client's side: acquired records, acknowledgements, sessions."""
