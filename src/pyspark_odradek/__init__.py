"""The Spark data source `odradek` and the pipelines built on it; the only importer of pyspark."""
