"""J-8 in Spark: a node is away for so long that the network deletes its subscription, and the query finds out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.node.node_process import running_node
from tests.spark.spark_helpers import QUERY_S, Names, RouterChild, node_options, publish_numbers

pytestmark = pytest.mark.spark


def test_a_query_fails_where_the_network_had_deleted_its_subscription_and_goes_on_when_it_may(
    spark: Any, router: RouterChild, names: Names, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    configured = f'[[subscription]]\nname = "{names.subscription}"\ntopics = ["{names.topic}"]\ntimeout_s = 1\n'
    numbers: list[int] = []

    def keep(frame: Any, _batch: int) -> None:
        numbers.extend(int(bytes(row.value)) for row in frame.collect())

    with running_node(tmp_path / "node", [router.url], configured) as node:

        def subscribe() -> None:
            with node.connect() as client:
                client.subscribe(names.subscription, [names.topic])

        def run(**given: str) -> None:
            options = {"subscribe": names.topic, "subscription": names.subscription, **node_options(node), **given}
            frame = spark.readStream.format("amqp").options(**options).load()
            writer = frame.writeStream.trigger(availableNow=True).foreachBatch(keep)
            query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
            try:
                assert query.awaitTermination(QUERY_S), "the query did not end"
            finally:
                query.stop()

        subscribe()
        publish_numbers(router.url, names.topic, 0, 10)
        node.end()
        publish_numbers(router.url, names.topic, 10, 15)  # accepted: nobody is owed them any more
        node.start()
        subscribe()
        publish_numbers(router.url, names.topic, 15, 20)
        with pytest.raises(StreamingQueryException) as caught:
            run()
        said = re.sub(r"\s+", " ", str(caught.value))
        assert f"SubscriptionGap: messages of topic '{names.topic}' are missing" in said
        assert "between the positions 10 and 11" in said
        assert "start the query with failOnDataLoss=false" in said
        assert numbers == list(range(10)), "what came before the gap is read"
        run(failOnDataLoss="false")
        assert numbers == [*range(10), *range(15, 20)]
        publish_numbers(router.url, names.topic, 20, 25)
        run()
        assert numbers == [*range(10), *range(15, 25)]
