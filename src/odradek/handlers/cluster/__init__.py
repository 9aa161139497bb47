"""What the brokers as a whole are and can do."""
