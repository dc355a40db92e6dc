"""Experiments on real processes: faults as data, real proxies between all parts, and the checker's verdict."""
