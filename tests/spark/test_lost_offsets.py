"""A checkpoint that lost its newest files, in Spark: topic -> query -> topic stays exact with a plain source."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_process import NodeProcess
from tests.spark.sink_recorder import Recorder
from tests.spark.spark_helpers import (
    Names,
    RouterChild,
    checkpoint_batches,
    node_options,
    publish_numbers,
    run_available,
)

pytestmark = pytest.mark.spark


def lose_newest(checkpoint: Path, batch: int) -> None:
    """The power failed: of this batch and those behind it neither offsets nor commits had reached the disk."""
    for folder in ("offsets", "commits"):
        for path in (checkpoint / folder).iterdir():
            name = path.name.removeprefix(".").removesuffix(".crc")
            if name.isdigit() and int(name) >= batch:
                path.unlink()


def test_batches_whose_offsets_are_lost_come_again_as_they_were(
    spark: Any, router: RouterChild, node: NodeProcess, names: Names, tmp_path: Path
) -> None:
    """J-5. The sink has decided batches that Spark knows nothing of any more; meanwhile more has arrived."""
    checkpoint = tmp_path / "checkpoint"
    with node.connect() as client:
        client.subscribe(names.subscription, [names.topic])
    options = {"subscribe": names.topic, "subscription": names.subscription, **node_options(node)}

    def run(most: int) -> None:
        frame = spark.readStream.format("amqp").options(**options, maxOffsetsPerTrigger=str(most)).load()
        frame = frame.select("value")
        run_available(frame, checkpoint, format="amqp", topic=names.out, sinkId=names.sink, **node_options(node))

    with Recorder(router.url, names.out) as recorder:
        publish_numbers(router.url, names.topic, 0, 50)
        run(20)
        assert checkpoint_batches(checkpoint) == [0, 1, 2]
        recorder.wait(lambda found: len(found) >= 50)
        lose_newest(checkpoint, 1)
        publish_numbers(router.url, names.topic, 50, 100)
        run(45)
        assert checkpoint_batches(checkpoint) == [0, 1, 2, 3, 4]
        received = recorder.wait(lambda found: len(found) >= 100)
    assert Counter(delivery.text for delivery in received) == Counter(map(str, range(100)))
