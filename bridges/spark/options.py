"""Reads the options of the format `amqp`, listed in option_table.py: checks them and turns them into values.

Spark is not needed here.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from bridges.doors.tls import NO_FILES, TlsFiles, node_context, tls_context
from bridges.node.addresses import parse_address
from bridges.node.client import RemoteNode, read_secret
from bridges.node.errors import BadRequest
from bridges.node.interface import Node
from bridges.node.model import NodeSettings, Subscription
from bridges.node.shard_core import Shard
from bridges.spark import option_values as values
from bridges.spark.option_kinds import Option, Reads, Side
from bridges.spark.option_names import BY_NAME, given_options
from bridges.spark.option_table import OPTIONS, options_of
from bridges.spark.option_values import EMBEDDED, CommitMode, Guarantee, Place
from oncewire.client.isolation import Isolation
from oncewire.settings.parsers import NotAllowed

__all__ = [
    "OPTIONS",
    "UNNAMED",
    "BridgeOptions",
    "Option",
    "Side",
    "SinkOptions",
    "SourceOptions",
    "bridge_options",
    "open_bridge",
    "open_node",
    "options_of",
    "sink_options",
    "source_options",
    "unnamed_sink",
]

AT_MOST_ONCE_RETENTION_S = 3600.0
"""What at-most-once hands out is done with before it is read: so long tasks have to read it."""
UNNAMED = "unnamed-writes"
"""The sink of all batch writes without `sinkId`, and in place of a query id: no other writer may share it (O-13)."""
_BRIDGE = frozenset(option.key for option in OPTIONS if option.key.startswith(("bridge", "amqp.")))


@dataclass(frozen=True, slots=True)
class BridgeOptions:
    """Which nodes, and how to reach them.

    Attributes:
        addresses: EMBEDDED, or where the node listens; of a source also several, in the order of their shards.
        secret: of a node that is not embedded, as given; empty = see the file.
        secret_file: None = none was given.
        folder, name, routers, tls: of an embedded node.
        node_tls: to a node that is not embedded.
    """

    addresses: tuple[str, ...]
    secret: str
    secret_file: Path | None
    folder: Path
    name: str
    routers: tuple[str, ...]
    tls: TlsFiles
    node_tls: TlsFiles = NO_FILES

    @property
    def address(self) -> str:
        """Of the only node."""
        (address,) = self.addresses
        return address

    @property
    def is_embedded(self) -> bool:
        """Whether the node runs in Spark's own processes."""
        return self.addresses == (EMBEDDED,)

    def nodes(self) -> tuple[BridgeOptions, ...]:
        """One for each node."""
        return tuple(replace(self, addresses=(address,)) for address in self.addresses)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader works with; see OPTIONS for the meanings. Times are in seconds.

    Attributes:
        topics: topics or patterns; empty only for batch reads, which need none.
        max_task_rows: of a task; None = as many as is good.
        isolation: None = as the subscription has it.
        shard: the share of the subscription that this node keeps; None = all of it. See `shards()`.
    """

    bridge: BridgeOptions
    guarantee: Guarantee
    subscription: str
    topics: tuple[str, ...]
    start: Place
    end: Place
    fail_on_data_loss: bool
    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_trigger_delay_s: float
    min_partitions: int
    max_task_rows: int | None
    include_headers: bool
    include_metadata: bool
    min_batches_to_retain: int
    receiving: Subscription
    isolation: Isolation | None = None
    shard: Shard | None = None

    @property
    def offset_name(self) -> str:
        """What Spark's offsets call the journal."""
        return self.subscription if self.shard is None else f"{self.subscription}#{self.shard.number}"

    def shards(self) -> tuple[SourceOptions, ...]:
        """The options of the reader of each node; where there is only one, these."""
        count = len(self.bridge.addresses)
        if count == 1:
            return (self,)
        found = []
        for number, bridge in enumerate(self.bridge.nodes()):
            one = replace(self, bridge=bridge, shard=Shard(number, count))
            start, end = self.start.of(one.offset_name), self.end.of(one.offset_name)
            assert start is not None, "source_options has looked"
            assert end is not None, "source_options has looked"
            found.append(replace(one, start=start, end=end))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer works with; see OPTIONS for the meanings. Times are in seconds.

    Attributes:
        topic: None = the column `topic` sets it.
        sink_id: None = the query's id; of a batch write: it stands alone (O-13).
        publish_timeout_s: None = no limit.
        require: subscriptions that a topic must have; 0 = none.
        query_id: of a batch write: whose batches these are; None = of all that write to the sink.
    """

    bridge: BridgeOptions
    guarantee: Guarantee
    topic: str | None
    error_topic: str | None
    sink_id: str | None
    batch_id: int | None
    commit_mode: CommitMode
    publish_timeout_s: float | None
    stage_timeout_s: float
    inflight: int
    max_outbox_bytes: int
    atomic_batches: bool
    takeover: bool
    require: int = 0
    query_id: str | None = None


def source_options(given: Mapping[str, str], *, is_stream: bool = True) -> SourceOptions:
    """Read the options of a source.

    Args:
        given: from Spark.
        is_stream: False = of a batch read.

    Raises:
        BadRequest: an option is unknown, missing, cannot be used, or does not fit another.
    """
    found = _parse(given, Side.SOURCE)
    bridge = _bridge(found)
    if not found["subscription"]:
        raise _missing("subscription", "the network keeps messages for a name; or read a journal of an edge: `journal`")
    topics = _topics(found, is_stream=is_stream)
    names = _offset_names(found["subscription"], len(bridge.addresses))
    start, end = found["startingOffsets"] or Place(values.EARLIEST), found["endingOffsets"]
    for name, place in (("startingOffsets", start), ("endingOffsets", end)):
        _check_place(name, place, names)
    if values.EARLIEST in {place.at for place in (end, *end.others)}:
        raise _bad("endingOffsets", "nothing ends where it begins", "give latest, or a position")
    if is_stream and "endingoffsets" in _lowered(given):
        raise _bad("endingOffsets", "a stream has no end", "leave it out, or read with spark.read")
    least, most = found["minOffsetsPerTrigger"], found["maxOffsetsPerTrigger"]
    if most and most < len(names):
        raise _bad("maxOffsetsPerTrigger", f"there are {len(names)} nodes", "give so many at least: one of each")
    if least and most and least > most:
        raise _bad("minOffsetsPerTrigger", "it is more than maxOffsetsPerTrigger", "give a smaller number")
    retention_s = found["retentionMs"]
    guarantee = found["deliveryGuarantee"]
    if retention_s is None:
        retention_s = AT_MOST_ONCE_RETENTION_S if guarantee is Guarantee.AT_MOST_ONCE else 0.0
    return SourceOptions(
        bridge=bridge,
        guarantee=guarantee,
        subscription=found["subscription"],
        topics=topics,
        start=start,
        end=end,
        fail_on_data_loss=found["failOnDataLoss"],
        max_rows=found["maxOffsetsPerTrigger"],
        max_bytes=found["maxBytesPerTrigger"],
        min_rows=found["minOffsetsPerTrigger"],
        max_trigger_delay_s=found["maxTriggerDelay"],
        min_partitions=found["minPartitions"] or 1,
        max_task_rows=found["maxRecordsPerPartition"],
        include_headers=found["includeHeaders"],
        include_metadata=found["includeMetadata"],
        min_batches_to_retain=found["minBatchesToRetain"],
        receiving=Subscription(
            "",
            "",
            (),
            credit=found["credit"],
            group_s=found["groupCommitMs"] / 1000,
            group_count=found["groupCommitMax"],
            max_journal_bytes=found["maxJournalBytes"],
            retention_s=retention_s,
            timeout_s=max(1, round(found["subscriptionTimeout"])),
        ),
        isolation=found["isolationLevel"],
    )


def sink_options(given: Mapping[str, str], *, is_stream: bool = True) -> SinkOptions:
    """Read the options of a sink.

    Args:
        given: from Spark.
        is_stream: False = of a batch write.

    Raises:
        BadRequest: an option is unknown, missing, cannot be used, or does not fit another.
    """
    found = _parse(given, Side.SINK)
    for name in ("batchId", "queryId"):
        if is_stream and found[name] is not None:
            raise _bad(name, "a stream numbers its batches itself", "leave it out")
    bridge = _bridge(found)
    if len(bridge.addresses) > 1:
        raise _bad("bridge", "a sink is at one node, which decides its batches", "name one node")
    if not is_stream and not found["sinkId"]:
        for name in ("batchId", "queryId", "takeover"):
            if found[name] is not None and found[name] is not False:
                raise _missing("sinkId", f"{name} is about a sink, and a batch write has no query that names its sink")
    return SinkOptions(
        bridge=bridge,
        guarantee=found["deliveryGuarantee"],
        topic=found["topic"],
        error_topic=found["errorTopic"],
        sink_id=found["sinkId"],
        batch_id=found["batchId"],
        commit_mode=found["commitMode"],
        publish_timeout_s=found["publishTimeout"],
        stage_timeout_s=found["stageTimeout"],
        inflight=found["inflight"],
        max_outbox_bytes=found["maxOutboxBytes"],
        atomic_batches=found["atomicBatches"],
        takeover=found["takeover"],
        require=found["require"],
        query_id=found["queryId"],
    )


def unnamed_sink(options: SinkOptions) -> str:
    """The sink of batch writes without `sinkId`: one for each way to publish, because a sink publishes in one way."""
    found = [UNNAMED]
    if options.guarantee is Guarantee.AT_MOST_ONCE:
        found.append(options.guarantee.value)
    if options.require:
        found.append(f"require-{options.require}")
    return "-".join(found)


def bridge_options(given: Mapping[str, str]) -> BridgeOptions:
    """Read only which node is meant, and how to reach it; other options may be there and are not looked at.

    Raises:
        BadRequest: an option is missing or cannot be used.
    """
    texts = _lowered(given)
    return _bridge(parsed(texts, [option for option in OPTIONS if option.key in _BRIDGE]))


def open_bridge(bridge: BridgeOptions) -> Node:
    """As `open_node`, for who only looks at a node and neither receives nor publishes."""
    if bridge.is_embedded:
        return _embedded(bridge)
    secret = bridge.secret.encode() if bridge.secret_file is None else read_secret(bridge.secret_file)
    return RemoteNode(bridge.address, secret, tls=bridge.node_tls)


def open_node(options: SourceOptions | SinkOptions) -> Node:
    """The node of the options. Nothing is opened or started by this; close it when it is not needed any more.

    Raises:
        BadRequest: the secret cannot be read, or is too short.
    """
    bridge = options.bridge
    if not bridge.is_embedded:
        return open_bridge(bridge)  # of one node: see SourceOptions.shards
    if isinstance(options, SourceOptions):
        return _embedded(bridge, defaults=options.receiving)
    return _embedded(bridge, inflight=options.inflight, max_outbox_bytes=options.max_outbox_bytes)


def _embedded(bridge: BridgeOptions, **settings: Any) -> Node:
    from bridges.node.embedded import EmbeddedNode  # half of all modules, which who talks to a node does not need

    return EmbeddedNode(
        NodeSettings(bridge.name, bridge.folder, bridge.routers, tls=bridge.tls, resumes=False, **settings)
    )


# --- checking ---------------------------------------------------------------------------------------------------------


def _lowered(given: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in given.items()}


def _parse(given: Mapping[str, str], side: Side) -> dict[str, Any]:
    texts = given_options(given, side, Reads.SUBSCRIPTION)
    found = parsed(texts, options_of(side))
    is_embedded = found["bridge"] == (EMBEDDED,)
    for option in options_of(side):
        if option.is_embedded_only and not is_embedded and option.key.lower() in texts:
            raise _bad(
                option.key,
                f"the bridge node at {', '.join(found['bridge'])} has settings of its own",
                "set it in that node's configuration (`oncewire bridge node --print-config`)",
            )
    return found


def parsed(texts: Mapping[str, str], chosen: Iterable[Option]) -> dict[str, Any]:
    """The values of options, by their names as the table has them; None = not given, and without a default."""
    found: dict[str, Any] = {}
    for option in chosen:
        given = texts.get(option.key.lower())
        found[option.key] = _value(option, str(option.default) if given is None else given.strip())
    return found


def _value(option: Option, given: str) -> Any:
    if not given:
        return None
    try:
        return option.parse(given)
    except ValueError as error:
        shown = "***" if option.secret else repr(given)
        why = str(error) if isinstance(error, NotAllowed) else "it is not what is allowed"
        raise BadRequest(f"{option.key} = {shown} cannot be used", why, f"give {option.allowed}") from None


def _topics(found: Mapping[str, Any], *, is_stream: bool) -> tuple[str, ...]:
    topics, patterns = found["subscribe"], found["subscribePattern"]
    if topics and patterns:
        raise _bad("subscribePattern", "subscribe is given, too", "give one of the two")
    if is_stream and not topics and not patterns:
        raise _missing("subscribe", "or subscribePattern: there is nothing to read")
    return tuple(topics or patterns or ())


def _offset_names(subscription: str, nodes: int) -> tuple[str, ...]:
    return (subscription,) if nodes == 1 else tuple(f"{subscription}#{number}" for number in range(nodes))


def _check_place(name: str, place: Place, wanted: tuple[str, ...]) -> None:
    """Positions have to be of the subscription, one for each of its shards."""
    if place.subscription is None:
        return
    given = [each.subscription for each in (place, *place.others)]
    if sorted(map(str, given)) != sorted(wanted):
        what = "subscription" if len(wanted) == 1 else "shards"
        raise _bad(name, f"it is of {', '.join(map(repr, given))}", f"name {what} {', '.join(map(repr, wanted))}")


def _bridge(found: Mapping[str, Any]) -> BridgeOptions:
    addresses, files = found["bridge"], _files(found, "bridge.tls")
    if addresses != (EMBEDDED,):
        for address in addresses:
            if not parse_address(address).is_tls and files != NO_FILES:
                raise _bad("bridge.tls.*", f"{address} asks for no TLS", "write tls://HOST:PORT, or leave them out")
        if files != NO_FILES:
            node_context(files)  # says what is wrong with them before anything is started
        if bool(found["bridge.secret"]) == bool(found["bridge.secretFile"]):
            raise BadRequest(
                f"the bridge node at {', '.join(addresses)} cannot be used",
                "one of bridge.secret and bridge.secretFile is needed, and not both",
                "give the node's secret, or a file with it",
            )
    else:
        if files != NO_FILES:
            raise _bad("bridge.tls.*", "an embedded node has no door", "leave them out; to routers it is amqp.tls.*")
        for needed in ("amqp.urls", "bridge.folder"):
            if not found[needed]:
                raise _missing(needed, "an embedded node needs it; or set `bridge` to the address of a node")
    secret_file = found["bridge.secretFile"]
    return BridgeOptions(
        addresses=addresses,
        secret=found["bridge.secret"] or "",
        secret_file=Path(secret_file) if secret_file else None,
        folder=Path(found["bridge.folder"] or "."),
        name=found["bridge.name"] or socket.gethostname(),
        routers=_with_user(found),
        tls=_tls(found),
        node_tls=files,
    )


def _files(found: Mapping[str, Any], kind: str) -> TlsFiles:
    ca, certificate, key = (found[f"{kind}.{name}"] for name in ("ca", "certificate", "key"))
    return TlsFiles(
        Path(ca) if ca else None,
        Path(certificate) if certificate else None,
        Path(key) if key else None,
        found[f"{kind}.checkHostname"],
    )


def _tls(found: Mapping[str, Any]) -> TlsFiles:
    files = _files(found, "amqp.tls")
    tls_context(files, found["amqp.urls"] or ())  # says what is wrong with them before anything is started
    return files


def _with_user(found: Mapping[str, Any]) -> tuple[str, ...]:
    user, password = found["amqp.sasl.username"], found["amqp.sasl.password"]
    if bool(user) != bool(password):
        name = "amqp.sasl.password" if user else "amqp.sasl.username"
        raise _missing(name, "a user has a name and a password")
    routers: tuple[str, ...] = found["amqp.urls"] or ()
    if not user:
        return routers
    return tuple(_url_with_user(url, user, password) for url in routers)


def _url_with_user(url: str, user: str, password: str) -> str:
    parts = urlsplit(url if "://" in url else f"amqp://{url}")
    if parts.username is not None:
        return url
    return urlunsplit(parts._replace(netloc=f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}"))


def _missing(name: str, why: str) -> BadRequest:
    return BadRequest(f"the option {name} is missing", why, f"set it: {BY_NAME[name.lower()].allowed}")


def _bad(name: str, why: str, fix: str) -> BadRequest:
    return BadRequest(f"the option {name} cannot be used", why, fix)
