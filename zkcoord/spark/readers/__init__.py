"""Two ways to read a batch's ranges: with Spark's Kafka connector, or in Python workers."""
