"""How a batch's ranges are read: by Spark's Kafka connector, or in Python workers."""
