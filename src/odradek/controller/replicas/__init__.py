"""What is decided about replicas: leaders, reassignments."""
