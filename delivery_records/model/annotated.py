"""What subscribers' *modified* has added to deliveries, as their ingress and egress keep it (rule E-4b).

Annotations are pairs of keys and values as AMQP encodes them: the record core compares keys and counts bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from delivery_records.model.limits import ANNOTATIONS_BYTES


def merged(known: Mapping[bytes, bytes] | None, added: Mapping[bytes, bytes]) -> Mapping[bytes, bytes] | None:
    """What was said last replaces what was said of the same key; None where it is more than is kept."""
    found = {**known, **added} if known else added
    size = sum(len(key) + len(value) for key, value in found.items())
    return None if size > ANNOTATIONS_BYTES else found


class Annotated:
    """What the subscriptions of one publisher have added, at its ingress. It leaves with its delivery."""

    __slots__ = ("added",)

    def __init__(self) -> None:
        """Nothing."""
        self.added: dict[int, dict[str, Mapping[bytes, bytes]]] = {}
        """By number and subscription."""

    def add(self, key: str, number: int, added: Mapping[bytes, bytes]) -> None:
        """A subscription, or a member of it, has added this; its egress has kept to the bound."""
        by_key = self.added.setdefault(number, {})
        by_key[key] = merged(by_key.get(key), added) or added

    def of(self, key: str, number: int) -> Mapping[bytes, bytes] | None:
        """What the subscription has added to the delivery; None = nothing."""
        return self.added.get(number, {}).get(key)

    def forget(self, number: int) -> None:
        """The delivery left the window."""
        self.added.pop(number, None)

    def forget_subscription(self, key: str) -> None:
        """It is gone."""
        for number, by_key in list(self.added.items()):
            by_key.pop(key, None)
            if not by_key:
                del self.added[number]
