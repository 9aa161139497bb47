"""The inputs and outputs of every pipeline, and what runs one from the command line."""
