"""A group of Kafka's old consumers becomes one of zkcoord's while records flow; then its offsets move to Kafka."""
