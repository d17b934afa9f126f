"""ZooKeeper: the only package that imports kazoo. What others use: `store`, `blocking`, `config`."""
