"""ZooKeeper: the only package that imports kazoo. Other packages use `store`, `blocking` and `config`."""
