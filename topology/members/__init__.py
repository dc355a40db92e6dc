"""Routers as members of the network: lease, keep-alive, and the history of etcd's data that they join (K-1 to K-9)."""
