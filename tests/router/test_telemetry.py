"""Spans from real routers reach a real OTLP collector; one that fails costs spans and nothing else."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from oncewire.cli.errors import CliError
from oncewire.client import Client
from oncewire.client import connect as connect_client
from router.commands.local_network import LocalNetwork
from router.operator import telemetry as telemetry_module
from router.operator.span_core import Kind, Span
from router.operator.telemetry import Telemetry, telemetry_of
from router.operator.trace_context import TraceContext
from router.process.logs import EventLog
from router.settings.config import RouterConfig
from tests.router.processes import running_router
from tests.router.relay import assert_no_internal_error
from tests.support.otlp_collector import Collector, running_collector
from tests.support.waiting import eventually

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
CONSUMER, PRODUCER, INTERNAL = 5, 4, 1


def connect(url: str, container_id: str) -> Client:
    return connect_client([url], container_id=container_id)


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with running_collector() as found:
        yield found


async def _spans(http: str) -> dict[str, float]:
    async with aiohttp.ClientSession() as session, session.get(f"{http}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
    return {
        sample.labels["result"]: sample.value
        for family in families
        if family.name == "oncewire_spans"
        for sample in family.samples
    }


def _span(number: int) -> Span:
    return Span(Kind.ACCEPT, "t", TraceContext(1, number + 1, True), 0, 1, 2)


async def test_one_message_through_two_routers_is_one_trace_at_the_collector(
    collector: Collector, tmp_path: Path
) -> None:
    settings = {"telemetry.endpoint": collector.url, "telemetry.sample_ratio": "0"}
    async with LocalNetwork(2, settings=settings, log_folder=tmp_path) as network:
        at = [f"amqp://127.0.0.1:{router.amqp_port}" for router in network.routers.values()]
        async with connect(at[0], "shop") as one, connect(at[1], "kitchen") as other:
            subscriber = await other.subscriber("orders", name="kitchen")
            publisher = await one.publisher("orders", name="shop")
            deliveries = aiter(subscriber)
            traced: dict[str, object] = {"traceparent": TRACEPARENT}
            for properties in (traced, {}):
                sending = asyncio.ensure_future(publisher.send(b"two coffees", application_properties=properties))
                delivery = await anext(deliveries)
                if properties:
                    assert delivery.message.application_properties == properties
                    reported = {str(key): value for key, value in delivery.message.annotations.items()}
                await delivery.accept()
                await sending
        spans = await collector.wait_for(lambda found: len(found) >= 4)
    by_name = {(span.name, span.router): span for span in spans}
    accept, forward = by_name["accept orders", "r1"], by_name["forward orders", "r2"]
    assert set(by_name) == {
        ("accept orders", "r1"),
        ("forward orders", "r2"),
        ("settle orders", "r1"),
        ("settle orders", "r2"),
    }
    assert {span.trace_id for span in spans} == {TRACE}
    assert accept.parent_id == PARENT
    assert forward.parent_id == accept.span_id == by_name["settle orders", "r1"].parent_id
    assert by_name["settle orders", "r2"].parent_id == forward.span_id
    assert reported["traceparent"] == f"00-{TRACE}-{accept.span_id}-01"
    assert (accept.kind, forward.kind) == (CONSUMER, PRODUCER)
    assert accept.start_ns <= forward.start_ns <= forward.end_ns
    assert not any(span.is_error for span in spans)
    assert forward.attributes["messaging.destination.subscription.name"].endswith("/kitchen")
    assert forward.attributes["oncewire.outcome"] == "accepted"
    assert_no_internal_error(tmp_path)


def test_without_an_endpoint_nothing_of_opentelemetry_is_imported() -> None:
    program = (
        "import sys\nimport router.node, router.commands.running, router.operator.telemetry\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'google.protobuf'))])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


async def test_an_unreachable_collector_costs_spans_and_no_delivery(tmp_path: Path) -> None:
    flags = ("--standalone", "--telemetry-endpoint=http://127.0.0.1:9", "--telemetry-sample-ratio=1")
    async with running_router(*flags) as router, connect(router.url, "client") as connection:
        subscriber = await connection.subscriber("orders", name="kitchen")
        publisher = await connection.publisher("orders", name="shop")
        sending = asyncio.ensure_future(publisher.send(b"x"))
        await (await anext(aiter(subscriber))).accept()
        await sending

        async def has_failed() -> bool:
            return bool((await _spans(router.http)).get("failed"))

        await eventually(has_failed, "spans are counted as failed")
        assert (await _spans(router.http))["exported"] == 0


async def test_the_log_says_once_that_the_collector_refuses_and_once_that_it_takes_spans_again(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="oncewire.router")
    collector.refuse_with = 400
    telemetry = Telemetry(RouterConfig(telemetry_endpoint=collector.url), "1", EventLog("r"))
    telemetry.start()
    try:
        for number in range(2):
            telemetry.queue(_span(number))
            await eventually(lambda before=number: telemetry.failed > before, "the collector has refused")
        collector.refuse_with = 0
        telemetry.queue(_span(3))
        await collector.wait_for(lambda spans: len(spans) == 1)
        await eventually(lambda: telemetry.exported == 1, "the collector has taken one")
    finally:
        await telemetry.stop()
    assert [record.getMessage() for record in caplog.records] == ["telemetry_failed", "telemetry_back"]
    assert telemetry.counts() == {"exported": 1, "dropped": 0, "failed": 2}


async def test_the_queue_is_bounded_and_what_has_no_room_is_counted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_module, "QUEUE_SPANS", 10)
    monkeypatch.setattr(telemetry_module, "BATCH_SPANS", 4)
    telemetry = Telemetry(RouterConfig(telemetry_endpoint=collector.url), "1", EventLog("r"))
    telemetry.start()
    for number in range(13):
        telemetry.queue(_span(number))
    await telemetry.stop()  # sends what is queued
    assert telemetry.counts() == {"exported": 10, "dropped": 3, "failed": 0}
    assert len(collector.spans) == 10


async def test_many_spans_leave_in_batches(collector: Collector) -> None:
    telemetry = Telemetry(RouterConfig(telemetry_endpoint=collector.url + "/"), "1", EventLog("r"))
    telemetry.start()
    for number in range(telemetry_module.BATCH_SPANS + 1):
        telemetry.queue(_span(number))
    try:
        await eventually(lambda: telemetry.exported == telemetry_module.BATCH_SPANS + 1, "the collector has taken all")
    finally:
        await telemetry.stop()
    assert (collector.requests, len(collector.spans)) == (2, telemetry_module.BATCH_SPANS + 1)


def test_without_the_extra_the_setting_is_refused_with_the_command_that_gets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(CliError) as refused:
        telemetry_of(RouterConfig(telemetry_endpoint="http://127.0.0.1:4318"), "1", EventLog("r"))
    assert "pip install 'oncewire[otel]'" in refused.value.fix
    assert telemetry_of(RouterConfig(), "1", EventLog("r")) is None


async def test_spans_and_the_store_etcd3_work_in_one_process(collector: Collector, tmp_path: Path) -> None:
    """Both bring messages of protobuf, and only one of them can choose its implementation."""
    settings = {"store": "etcd3", "telemetry.endpoint": collector.url, "telemetry.sample_ratio": "1"}
    async with LocalNetwork(1, settings=settings, log_folder=tmp_path) as network:
        url = f"amqp://127.0.0.1:{network.routers['r1'].amqp_port}"
        async with connect(url, "client") as connection:
            subscriber = await connection.subscriber("orders", name="kitchen")
            publisher = await connection.publisher("orders", name="shop")
            sending = asyncio.ensure_future(publisher.send(b"x"))
            await (await anext(aiter(subscriber))).accept()
            await sending
        spans = await collector.wait_for(lambda found: len(found) >= 4)
    assert {span.name for span in spans} == {"accept orders", "forward orders", "settle orders"}
    assert_no_internal_error(tmp_path)
