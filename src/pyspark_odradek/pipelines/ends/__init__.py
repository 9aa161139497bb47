"""Where pipelines read and write: topics as streams and at one moment, batches, small files."""
