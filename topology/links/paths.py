"""Best paths through the mesh of routers: Dijkstra with ties broken the same way everywhere."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Graph: TypeAlias = Mapping[int, Mapping[int, int]]
"""Router incarnation -> neighbour -> cost of sending to it, at least 1."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The best paths from one router to all it can reach, itself left out."""

    distances: Mapping[int, int]
    """Sum of costs by destination."""
    next_hops: Mapping[int, int]
    """Neighbour to send to by destination."""


NO_PATHS = Paths({}, {})


def best_paths(graph: Graph, source: int) -> Paths:
    """The best paths from `source`. Of equally good ones that over the neighbour with the smallest incarnation counts.

    Costs are positive, so each hop along next hops is nearer to the destination: with one graph at all routers no frame
    goes round in circles.
    """
    distances: dict[int, int] = {}
    next_hops: dict[int, int] = {}
    # The first hop is part of the order: of all best paths to a router the one with the smallest is taken out first.
    waiting = [(cost, neighbour, neighbour) for neighbour, cost in graph.get(source, {}).items()]
    heapq.heapify(waiting)
    while waiting:
        distance, first_hop, router = heapq.heappop(waiting)
        if router in distances or router == source:
            continue
        distances[router] = distance
        next_hops[router] = first_hop
        for neighbour, cost in graph.get(router, {}).items():
            if neighbour not in distances:
                heapq.heappush(waiting, (distance + cost, first_hop, neighbour))
    return Paths(distances, next_hops)
