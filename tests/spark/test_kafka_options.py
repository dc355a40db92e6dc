"""The table of Kafka's options against the code: what is the same, what is taken by another name, what is refused."""

from __future__ import annotations

import logging

import pytest

from bridges.node.errors import BadRequest
from bridges.spark.journal_options import journal_options
from bridges.spark.kafka_options import KAFKA, Fit, KafkaOption
from bridges.spark.option_kinds import Side
from bridges.spark.option_names import BY_NAME, reads_journal
from bridges.spark.options import sink_options, source_options

NODE = {"bridge": "tcp://127.0.0.1:7072", "bridge.secret": "0123456789abcdef"}
SOURCE = {**NODE, "subscribe": "orders"}
VALUES = {"assign": '{"orders": [0]}', "kafka.group.id": "billing"}
ROWS = {row.name: row for row in KAFKA}


def of_fit(fit: Fit) -> list[KafkaOption]:
    return [row for row in KAFKA if row.fit is fit]


def test_every_row_is_there_once() -> None:
    assert len(ROWS) == len(KAFKA)
    assert {row.side for row in KAFKA} == {"source", "sink", "both"}


@pytest.mark.parametrize("row", of_fit(Fit.SAME), ids=lambda row: row.name)
def test_an_option_that_is_the_same_has_kafkas_name_and_side(row: KafkaOption) -> None:
    option = BY_NAME[row.name.lower()]
    assert option.key == row.name
    assert option.side in {Side(row.side), Side.BOTH}


@pytest.mark.parametrize("row", of_fit(Fit.OTHER), ids=lambda row: row.name)
def test_an_option_of_another_name_does_what_ours_does_and_a_hint_names_it(
    row: KafkaOption, caplog: pytest.LogCaptureFixture
) -> None:
    value = VALUES[row.name]
    with caplog.at_level(logging.WARNING, "oncewire.spark"):
        if reads_journal({row.name: value}):
            options = journal_options({row.name: value, "edge": "http://127.0.0.1:7074"}, is_stream=True)
            assert options.journals == ("orders",)
        else:
            assert source_options({**SOURCE, row.name: value}).subscription == "billing"
    assert f"the option {row.name} is taken for {row.ours}" in caplog.text
    assert row.ours.lower() in BY_NAME


@pytest.mark.parametrize("row", of_fit(Fit.NONE), ids=lambda row: row.name)
def test_an_option_that_does_not_apply_is_refused_with_the_reason_of_the_table(row: KafkaOption) -> None:
    name = row.name.replace("*", "x")
    if row.side != "sink":
        with pytest.raises(BadRequest) as caught:
            source_options({**SOURCE, "subscription": "s", name: "1"})
        assert row.words in str(caught.value)
    if row.side != "source":
        with pytest.raises(BadRequest) as caught:
            sink_options({**NODE, name: "1"})
        assert row.words in str(caught.value)


def test_kafkas_name_beside_ours_is_refused_and_so_are_partitions_that_a_journal_does_not_have() -> None:
    with pytest.raises(BadRequest, match="subscription is given, too"):
        source_options({**SOURCE, "subscription": "s", "kafka.group.id": "t"})
    with pytest.raises(BadRequest, match="a journal has one partition, 0"):
        journal_options({"assign": '{"orders": [0, 1]}', "edge": "http://h:1"}, is_stream=True)
