"""A deterministic world for the record core: virtual time, a simulated etcd, network and clients, seeded faults."""
