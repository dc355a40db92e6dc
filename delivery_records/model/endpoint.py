"""A client link's end at this router, as the parts that serve it know it."""

from __future__ import annotations


class Endpoint:
    """Whose link it is. An `Ingress` is one, and an `Egress`; their parts need no more of them than this."""

    __slots__ = ("epoch", "key", "name")

    def __init__(self, key: str, epoch: int, name: str) -> None:
        """Serve the attachment at `key`; its epoch changes when this router writes it again (A-4, A-10)."""
        self.key = key
        self.epoch = epoch
        self.name = name
        """`container-id/link-name`, for people."""
