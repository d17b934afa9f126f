"""The behaviour of the old ZooKeeper consumers of Kafka 0.8.0 to 1.1.1, version by version: which registrations they
can read, which assignment they compute, and which nodes they leave behind. Pure."""
