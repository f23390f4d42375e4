"""etcd: a client of its JSON gateway, and the log of the engine in it."""
