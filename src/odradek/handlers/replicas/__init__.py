"""Where replicas are and who leads: the controller's commands, elections, moves."""
