"""Access to etcd: one interface, the stores that implement it, and an etcd server of our own for tests and the demo."""
