"""The inputs and outputs of pipelines: topics as streams and at one moment, batches, small
files."""
