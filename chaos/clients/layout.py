"""Which clients an experiment has, and which router each prefers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.clients.client_plan import PublisherPlan, Share, SubscriberPlan


@dataclass(frozen=True, slots=True)
class Load:
    """Clients and what they do."""

    publishers: Mapping[str, str]
    """Each publisher's name, with its topic."""
    subscribers: Mapping[str, str]
    """Each subscriber's name, with the topic or pattern it subscribes to."""
    rows: int
    """Rows of the source at most, over all publishers."""
    rate: float
    """Messages per second of each publisher."""
    window: int
    """Messages a publisher has unsettled at most."""
    batch: int
    """Messages a subscriber processes, and accepts, together."""
    batch_s: float
    """A smaller batch is processed after this time."""
    file: str | None = None
    """A text file to send; None: the flights."""
    is_durable: bool = False
    """Whether clients keep journals that outlive their processes."""
    share: str | None = None
    """The shared subscription that all subscribers are members of; None: each has a subscription of its own."""
    least: int = 0
    """Messages that publishers send at least before they are stopped, over all of them."""
    timeout_s: float = 60.0
    """How long a subscription, or what a member has, outlives its link (T_sub)."""
    groups: int = 0
    """Groups of half of each publisher's messages, which come to members of a shared subscription in order (SH-6)."""


def lay_out(
    load: Load, urls: Sequence[str], folder: Path, chance: random.Random
) -> tuple[list[PublisherPlan], list[SubscriberPlan]]:
    """Plan the clients: each prefers another router, and tries the others in an order of its own.

    Args:
        load: who there is.
        urls: where the routers are.
        folder: for the clients' files.
        chance: decides who prefers which router.
    """
    places = list(urls)
    chance.shuffle(places)
    count = len(load.publishers)
    publishers = [
        PublisherPlan(
            name=name,
            topic=topic,
            urls=order,
            events=str(folder / f"{name}.jsonl"),
            share=Share(load.rows, index, count, load.file),
            rate=load.rate,
            window=load.window,
            journal=_journal(load, folder, name),
            groups=load.groups,
        )
        for index, ((name, topic), order) in enumerate(
            zip(load.publishers.items(), _orders(places, chance), strict=False)
        )
    ]
    subscribers = [
        SubscriberPlan(
            name=name,
            address=address,
            urls=order,
            events=str(folder / f"{name}.jsonl"),
            batch=load.batch,
            batch_s=load.batch_s,
            journal=_journal(load, folder, name),
            timeout_s=load.timeout_s,
            share=load.share,
            by_group=load.groups > 0,
        )
        for (name, address), order in zip(load.subscribers.items(), _orders(places, chance), strict=False)
    ]
    return publishers, subscribers


def _orders(places: Sequence[str], chance: random.Random) -> Iterator[tuple[str, ...]]:
    index = 0
    while True:
        first = places[index % len(places)]
        others = [place for place in places if place != first]
        chance.shuffle(others)
        yield (first, *others)
        index += 1


def _journal(load: Load, folder: Path, name: str) -> str | None:
    return str(folder / f"{name}.sqlite") if load.is_durable else None
