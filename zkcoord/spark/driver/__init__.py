"""The driver loop of a Spark consumer: it plans batches, announces them, has them processed, and commits."""
