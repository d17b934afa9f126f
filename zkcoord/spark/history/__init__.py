"""Jobs over Kafka's offset log, `__consumer_offsets`: what every group committed, and when."""
