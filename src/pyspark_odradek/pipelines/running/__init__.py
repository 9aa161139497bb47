"""The inputs and outputs of every pipeline, and the runner of the command line."""
