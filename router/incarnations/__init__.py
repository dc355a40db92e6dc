"""Incarnations one after the other: joining, the incarnation, its requests to etcd, its end (K-1, K-3, K-8)."""
