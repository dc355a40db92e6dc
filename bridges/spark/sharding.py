"""A subscription that several nodes share out: is each node the one it should be, and who gives how much of a batch.

No Spark here. What a node keeps is configured there; a query only looks whether it has all of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridges.node.errors import BadRequest
from bridges.node.interface import Node
from bridges.node.shard_core import ShardBy, parse_shard
from bridges.node.shards import refuse_part
from bridges.spark.options import SourceOptions

_FIX = (
    "name all nodes of the subscription in the option bridge, in the order of their shards; "
    "see docs/spark-cluster.md for how to change their number"
)


def sharded_journal(node: Node, options: SourceOptions) -> tuple[str, list[str]]:
    """The journal's uuid and the topics of a node that keeps the shard that the options say.

    Raises:
        BadRequest: it does not receive the subscription, or keeps another part of it, or other topics.
    """
    assert options.shard is not None
    name, address = options.subscription, options.bridge.address
    state = node.status()["subscriptions"].get(name)
    if state is None:
        raise BadRequest(
            f"subscription {name!r} cannot be read at {address}",
            "the node does not receive it",
            f'write it into the node\'s configuration, with shard = "{options.shard}", before anything is published',
        )
    if state["shard"] != str(options.shard):
        keeps = f"shard {state['shard']}" if state["shard"] else "all messages"
        raise BadRequest(
            f"subscription {name!r} cannot be read at {address} as shard {options.shard}",
            f"the node keeps {keeps}",
            _FIX,
        )
    if options.isolation is not None and state["isolation"] != options.isolation.value:
        raise BadRequest(
            f"subscription {name!r} cannot be read at {address} with isolation level {options.isolation.value}",
            f"the node receives it with the level {state['isolation']}",
            "leave out isolationLevel, or make a subscription with isolation_level in the nodes' configurations",
        )
    wanted, has = set(options.topics), set(state["topics"])
    if options.topics and (not has <= wanted if state["shard_by"] == ShardBy.TOPIC.value else wanted != has):
        raise _other_topics(options, f"{address} has the topics {', '.join(state['topics'])}")
    return str(state["journal"]), state["topics"]


def check_topics(options: SourceOptions, of_nodes: Sequence[Sequence[str]]) -> None:
    """Refuse a query of topics that none of its nodes receives.

    Raises:
        BadRequest: it is one.
    """
    known = {topic for topics in of_nodes for topic in topics}
    if missing := [topic for topic in options.topics if topic not in known]:
        raise _other_topics(options, f"none of the nodes has {', '.join(missing)}")


def _other_topics(options: SourceOptions, why: str) -> BadRequest:
    return BadRequest(
        f"subscription {options.subscription!r} cannot be read as topics {', '.join(options.topics)}",
        why,
        "use the topics that the nodes have in their configurations, all of them",
    )


def check_whole(node: Node, options: SourceOptions) -> None:
    """Refuse to read one shard as if it were all: for batch reads, which do not subscribe.

    Raises:
        BadRequest: the node keeps a shard only.
    """
    if options.bridge.is_embedded:
        return
    state = node.status()["subscriptions"].get(options.subscription)
    if state is not None and state["shard"]:
        raise refuse_part(options.subscription, parse_shard(state["shard"]))


def check_names(subscription: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse the checkpoint of a query with another number of nodes.

    Raises:
        BadRequest: it is of one.
    """
    if set(names) == set(wanted) or {name.partition("#")[0] for name in names} != {subscription}:
        return  # the usual case; or a checkpoint of something else, which `read_offset` reports
    raise BadRequest(
        f"the checkpoint cannot be used for subscription {subscription!r} with {_nodes(len(wanted))}",
        f"it is of a query with {_nodes(len(names))}: a key would move to another journal",
        "name the same nodes in the option bridge; see docs/spark-cluster.md for how to change their number",
    )


def _nodes(count: int) -> str:
    return f"{count} node{'s' * (count > 1)}"


def split_rows(most: int, waiting: Sequence[int]) -> list[int]:
    """How many rows of a batch come from each node: in proportion to what waits there, and none is passed over.

    Args:
        most: rows of the batch, at least one for each node.
        waiting: rows at each node.
    """
    total = sum(waiting)
    if total <= most:
        return list(waiting)
    spare = most - sum(rows > 0 for rows in waiting)
    return [min(rows, 1 + spare * rows // total) if rows else 0 for rows in waiting]
