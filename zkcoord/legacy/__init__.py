"""What the old ZooKeeper consumers of Kafka 0.8.0 to 1.1.1 read, compute and leave behind, version by version. Pure."""
