"""Best paths: as short as networkx finds them, the same whatever order the links come in, and free of circles."""

from __future__ import annotations

import random
from collections.abc import Iterable

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from topology.links.paths import Graph, best_paths


def random_graph(seed: int, routers: int, density: float, symmetric: bool = True) -> dict[int, dict[int, int]]:
    chance = random.Random(seed)
    names = chance.sample(range(1, 10_000), routers)
    graph: dict[int, dict[int, int]] = {name: {} for name in names}
    for one in names:
        for other in names:
            if one < other and chance.random() < density:
                # Few different costs, so that there are many equally good paths.
                graph[one][other] = chance.randint(1, 4)
                graph[other][one] = graph[one][other] if symmetric else chance.randint(1, 4)
    return graph


graphs = st.builds(random_graph, st.integers(0, 10_000), st.integers(1, 25), st.floats(0, 1), st.booleans())


def shuffled(graph: Graph, seed: int) -> Graph:
    chance = random.Random(seed)

    def mixed(names: Iterable[int]) -> list[int]:
        return chance.sample(found := list(names), len(found))

    return {one: {other: graph[one][other] for other in mixed(graph[one])} for one in mixed(graph)}


@given(graph=graphs)
def test_distances_are_those_of_networkx(graph: Graph) -> None:
    oracle: nx.DiGraph[int] = nx.DiGraph()
    oracle.add_nodes_from(graph)
    for one, links in graph.items():
        oracle.add_weighted_edges_from((one, other, cost) for other, cost in links.items())
    for source in graph:
        expected = nx.single_source_dijkstra_path_length(oracle, source)
        del expected[source]
        assert dict(best_paths(graph, source).distances) == expected


@given(graph=graphs, seed=st.integers(0, 1000))
def test_the_order_in_which_links_are_reported_changes_nothing(graph: Graph, seed: int) -> None:
    other = shuffled(graph, seed)
    for source in graph:
        assert best_paths(other, source) == best_paths(graph, source)


@given(graph=graphs)
def test_of_equally_good_paths_that_over_the_smallest_neighbour_counts(graph: Graph) -> None:
    distances = {router: {**best_paths(graph, router).distances, router: 0} for router in graph}
    for source in graph:
        paths = best_paths(graph, source)
        for target, hop in paths.next_hops.items():
            good = [
                neighbour
                for neighbour, cost in graph[source].items()
                if cost + distances[neighbour].get(target, 10**9) == paths.distances[target]
            ]
            assert hop == min(good)


@given(graph=graphs)
def test_following_next_hops_arrives_at_the_promised_cost(graph: Graph) -> None:
    paths = {router: best_paths(graph, router) for router in graph}
    for source in graph:
        for target, distance in paths[source].distances.items():
            at, cost = source, 0
            while at != target:
                hop = paths[at].next_hops[target]
                cost += graph[at][hop]
                at = hop
                assert cost <= distance
            assert cost == distance


def test_who_has_no_links_reaches_nobody() -> None:
    assert not best_paths({}, 1).distances
    assert not best_paths({1: {}, 2: {3: 1}, 3: {2: 1}}, 1).next_hops


def test_a_dear_direct_link_is_worse_than_two_cheap_ones() -> None:
    paths = best_paths({1: {2: 10, 3: 2}, 2: {1: 10, 3: 2}, 3: {1: 2, 2: 2}}, 1)
    assert paths.distances == {3: 2, 2: 4}
    assert paths.next_hops == {3: 3, 2: 3}
