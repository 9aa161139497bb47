"""What every pipeline is told and gives, and what runs one from the command line."""
