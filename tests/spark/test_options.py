"""Options: what is allowed, what is refused, and what the errors say."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from bridges.node.client import RemoteNode
from bridges.node.embedded import EmbeddedNode
from bridges.node.errors import BadRequest
from bridges.spark.option_values import CommitMode, Guarantee, Place, is_topic_of, pattern_matcher
from bridges.spark.options import OPTIONS, Side, open_node, options_of, sink_options, source_options

EMBEDDED = {"amqp.urls": "amqp://127.0.0.1:1, amqp://127.0.0.1:2", "bridge.folder": "/f"}
SOURCE = {**EMBEDDED, "subscribe": "orders", "subscription": "billing"}
REMOTE = {"bridge": "tcp://127.0.0.1:7072", "bridge.secret": "0123456789abcdef"}


def test_the_table_names_every_option_once_and_explains_it() -> None:
    names = [option.key.lower() for option in OPTIONS]
    assert len(set(names)) == len(names)
    for option in OPTIONS:
        assert option.reason.endswith((".", ")."))
        assert option.allowed
        if option.default:
            option.parse(option.default)
    assert {option.key for option in options_of(Side.SINK)} & {"topic", "subscribe"} == {"topic"}


def test_defaults_of_a_source() -> None:
    options = source_options(SOURCE)
    assert (options.subscription, options.topics) == ("billing", ("orders",))
    assert (options.start, options.end) == (Place("earliest"), Place("latest"))
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    assert (options.fail_on_data_loss, options.include_headers, options.include_metadata) == (True, False, True)
    assert (options.max_rows, options.max_bytes, options.min_rows) == (None, None, None)
    assert (options.max_trigger_delay_s, options.min_partitions, options.min_batches_to_retain) == (900.0, 1, 2)
    assert (options.receiving.retention_s, options.receiving.group_s) == (0.0, 0.005)
    assert options.bridge.routers == ("amqp://127.0.0.1:1", "amqp://127.0.0.1:2")


def test_defaults_of_a_sink() -> None:
    options = sink_options(EMBEDDED)
    assert (options.topic, options.error_topic, options.sink_id, options.batch_id) == (None, None, None, None)
    assert (options.commit_mode, options.publish_timeout_s) == (CommitMode.PUBLISHED, None)
    assert (options.stage_timeout_s, options.atomic_batches, options.takeover) == (600.0, False, False)


def test_names_are_read_in_any_case_and_values_with_units() -> None:
    options = source_options(
        {
            **SOURCE,
            "MAXOFFSETSPERTRIGGER": "7",
            "maxbytespertrigger": "64 MiB",
            "minOffsetsPerTrigger": "3",
            "maxTriggerDelay": "90s",
            "minPartitions": "4",
            "includeHeaders": "TRUE",
            "failOnDataLoss": " false ",
            "deliveryGuarantee": "At-Least-Once",
            "retentionMs": "1500",
            "groupCommitMs": "20",
        }
    )
    assert (options.max_rows, options.max_bytes, options.min_rows) == (7, 64 << 20, 3)
    assert (options.max_trigger_delay_s, options.min_partitions) == (90.0, 4)
    assert (options.include_headers, options.fail_on_data_loss) == (True, False)
    assert options.guarantee is Guarantee.AT_LEAST_ONCE
    assert (options.receiving.retention_s, options.receiving.group_s) == (1.5, 0.02)


def test_at_most_once_keeps_messages_for_the_tasks_that_read_them() -> None:
    assert source_options({**SOURCE, "deliveryGuarantee": "at-most-once"}).receiving.retention_s == 3600.0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"maxoffsetpertrigger": "1"}, "the option 'maxOffsetPerTrigger' cannot be used"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"zzzz": "1"}, "the option 'zzzz' cannot be used: the source has no such option; leave it out"),
        ({"topic": "x"}, "an option of the sink, not of the source"),
        ({"subscribe": ""}, "subscribe is missing"),
        ({"subscription": ""}, "subscription is missing"),
        ({"subscription": "../x"}, "subscription = '../x' cannot be used"),
        ({"subscribe": "a,,b"}, "one of the names is empty"),
        ({"subscribe": "orders.*"}, "use subscribePattern"),
        ({"subscribe": "x" * 256}, "longer than 255 bytes"),
        ({"subscribe": ".".join("a" * 17)}, "more than 16 parts"),
        ({"subscribePattern": "orders.#"}, "give one of the two"),
        ({"subscribe": "", "subscribePattern": "orders-[0-9]+"}, "is a regular expression, and the network has"),
        ({"subscribe": "", "subscribePattern": r"orders\..*"}, ": write orders.#;"),
        ({"subscribe": "", "subscribePattern": ".*"}, ": write #;"),
        ({"subscribe": "", "subscribePattern": "orders-.*"}, "one word and # any rest; give"),
        ({"subscribe": "", "subscribePattern": "orders*"}, "between the dots alone"),
        ({"subscribe": "", "subscribePattern": "a.*/b"}, "mixes . and /"),
        ({"startingOffsets": "tomorrow"}, "neither earliest nor latest nor JSON"),
        ({"startingOffsets": '{"other": 3}'}, "of 'other'"),
        ({"startingOffsets": '{"billing": "3"}'}, "whole number"),
        ({"startingOffsets": '{"billing": {"seq": 3}}'}, "journal of the position is missing"),
        ({"startingOffsets": '{"billing": -3}'}, "whole number"),
        ({"startingOffsets": '{"sensors": {"0": 5}}'}, "it is of 'sensors'; name subscription 'billing'"),
        ({"startingOffsets": '{"billing": {"0": 5, "1": 7}}'}, "has one partition, 0, and no partition 1"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"maxOffsetsPerTrigger": "0"}, "give a number of messages, from 1"),
        ({"minPartitions": "abc"}, "it is no whole number; give 1 to 10000"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger = 'many'"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "more than maxOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "5 apples"}, "it is no size"),
        ({"maxTriggerDelay": "5"}, "it has no unit"),
        ({"includeHeaders": "yes"}, "neither true nor false"),
        ({"deliveryGuarantee": "twice"}, "`at-most-once`"),
        ({"amqp.urls": ""}, "amqp.urls is missing"),
        ({"bridge.folder": ""}, "bridge.folder is missing"),
        ({"amqp.urls": "http://x"}, "no address of a router"),
        ({"amqp.sasl.username": "u"}, "amqp.sasl.password is missing"),
        ({"path": "/data"}, "messages are not in files"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_error_says_why(change: dict[str, str], what: str) -> None:
    with pytest.raises(BadRequest) as caught:
        source_options({**SOURCE, **change})
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"subscribe": "x"}, "an option of the source, not of the sink"),
        ({"sinkid": "a b"}, "sinkId = 'a b'"),
        ({"topic": "a.*"}, "wildcard"),
        ({"topic": "a,b"}, "must be one topic"),
        ({"batchId": "1"}, "numbers its batches itself"),
        ({"commitMode": "later"}, "`staged`"),
        ({"inflight": "5000"}, "1 to 1024"),
    ],
)
def test_a_sink_refuses_what_it_cannot_use(change: dict[str, str], what: str) -> None:
    with pytest.raises(BadRequest) as caught:
        sink_options({**EMBEDDED, **change})
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"bridge": "tcp://h", "bridge.secret": "0123456789abcdef"}, "no address of a bridge node"),
        ({"bridge": "tcp://h:1"}, "one of bridge.secret and bridge.secretFile"),
        ({**REMOTE, "bridge.secretFile": "/s"}, "and not both"),
    ],
)
def test_a_remote_node_needs_an_address_and_one_secret(given: dict[str, str], what: str) -> None:
    with pytest.raises(BadRequest) as caught:
        sink_options(given)
    assert what in str(caught.value)


def test_what_spark_adds_for_itself_is_passed_over() -> None:
    sink_options({**EMBEDDED, "checkpointLocation": "/c", "queryName": "q", "path": ""})


def test_a_batch_write_needs_a_sink_id_only_for_what_is_about_a_sink() -> None:
    for name, value in (("batchId", "0"), ("queryId", "q"), ("takeover", "true")):
        with pytest.raises(BadRequest, match=f"sinkId is missing: {name} is about a sink"):
            sink_options({**EMBEDDED, name: value}, is_stream=False)
    assert sink_options(EMBEDDED, is_stream=False).sink_id is None
    assert sink_options({**EMBEDDED, "sinkId": "s", "batchId": "0"}, is_stream=False).batch_id == 0


def test_a_table_of_the_catalog_has_options_of_both_sides_and_properties() -> None:
    """As Spark hands them on: each option twice, and what else it knows of a table."""
    both = {**SOURCE, "topic": "invoices", "sinkId": "s"}
    table = {**{f"option.{name}": value for name, value in both.items()}, **both, "provider": "amqp", "owner": "ann"}
    assert source_options(table).topics == ("orders",)
    assert sink_options({**table, "topic": "others"}).topic == "others"  # a writer of the table may say more
    with pytest.raises(BadRequest, match="did you mean subscription"):
        source_options({"option.subscripton": "x", "provider": "amqp"})


def test_a_batch_read_needs_no_topics_and_may_end_somewhere() -> None:
    options = source_options(
        {**EMBEDDED, "subscription": "billing", "endingOffsets": '{"billing": 9}'}, is_stream=False
    )
    assert (options.topics, options.end.at) == ((), 9)
    with pytest.raises(BadRequest, match="nothing ends where it begins"):
        source_options({**SOURCE, "endingOffsets": "earliest"}, is_stream=False)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("EARLIEST", Place("earliest")),
        ('{"billing": 7}', Place(7, None, "billing")),
        ('{"billing": -1}', Place("latest", None, "billing")),
        ('{"billing": -2}', Place("earliest", None, "billing")),
        ('{"billing": {"journal": "ab", "seq": 7, "ends": "5,3"}}', Place(7, "ab", "billing")),
        ('{"billing": {"0": 8}}', Place(7, None, "billing")),
        ('{"billing": {"0": -2}}', Place("earliest", None, "billing")),
    ],
)
def test_starting_offsets_are_a_word_or_a_position_as_a_checkpoint_has_it(text: str, place: Place) -> None:
    assert source_options({**SOURCE, "startingOffsets": text}).start == place


def test_a_remote_node_has_settings_of_its_own(tmp_path: Path) -> None:
    remote = {**REMOTE, "subscribe": "orders", "subscription": "billing"}
    node = open_node(source_options(remote))
    assert isinstance(node, RemoteNode)
    for name, value in (("credit", "5"), ("amqp.urls", "amqp://x"), ("retentionMs", "5")):
        with pytest.raises(BadRequest, match=f"option {name} cannot be used: the bridge node at"):
            source_options({**remote, name: value})
    secret = tmp_path / "secret"
    secret.write_text("a secret of some length\n")
    del remote["bridge.secret"]
    options = source_options({**remote, "bridge.secretFile": str(secret)})
    assert isinstance(pickle.loads(pickle.dumps(open_node(options))), RemoteNode)
    with pytest.raises(BadRequest, match="cannot be read"):
        open_node(source_options({**remote, "bridge.secretFile": str(tmp_path / "none")}))


def test_an_embedded_node_gets_the_settings_of_the_options(tmp_path: Path) -> None:
    node = open_node(
        source_options(
            {**SOURCE, "bridge.folder": str(tmp_path), "bridge.name": "n", "credit": "7", "retentionMs": "2000"}
        )
    )
    assert isinstance(node, EmbeddedNode)
    settings = node._settings
    assert (settings.name, settings.folder, settings.resumes) == ("n", tmp_path, False)
    assert (settings.defaults.credit, settings.defaults.retention_s) == (7, 2.0)
    sink = open_node(sink_options({**EMBEDDED, "inflight": "9", "maxOutboxBytes": "1m"}))
    assert isinstance(sink, EmbeddedNode)
    assert (sink._settings.inflight, sink._settings.max_outbox_bytes) == (9, 1 << 20)


def test_user_and_password_go_to_routers_that_name_none() -> None:
    options = source_options(
        {
            **SOURCE,
            "amqp.urls": "amqp://a:1,b:2,amqps://x:y@c:3,wss://d/amqp",
            "amqp.sasl.username": "me",
            "amqp.sasl.password": "a/b@c",
        }
    )
    mine = ("amqp://me:a%2Fb%40c@a:1", "amqp://me:a%2Fb%40c@b:2", "amqps://x:y@c:3", "wss://me:a%2Fb%40c@d/amqp")
    assert options.bridge.routers == mine


def test_an_error_never_shows_a_secret() -> None:
    with pytest.raises(BadRequest) as caught:
        source_options({**REMOTE, "bridge.secret": " \x00hidden\n x ", "amqp.sasl.password": "hidden"})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "topic", "fits"),
    [
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.de", False),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.de", True),
        ("orders.#", "ordersx", False),
        ("#", "a.b", True),
        ("#.b", "b", True),
        ("#.b", "a.x.b", True),
        ("a.#.b", "a.b", True),
        ("a/*/c", "a/b/c", True),
        ("a+b.*", "a+b.c", True),
        ("a+b.*", "aab.c", False),
    ],
)
def test_patterns_match_what_the_network_matches(pattern: str, topic: str, fits: bool) -> None:
    from delivery_records.model.topics import matches

    assert is_topic_of(pattern_matcher(pattern), topic) == fits == matches(pattern, topic)
