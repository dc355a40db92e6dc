"""Who is attached where: the view of etcd, and what attaching, expiry, drain and deletion do to it (rules K and A)."""
