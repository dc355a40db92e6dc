"""Spans of applications: one trace from the sender over routers to whoever processes, and errors where they belong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from oncewire.client import Message, connect
from oncewire.client.tracing import context, processing, sending, traced
from oncewire.client.transactions import Consumer, ReceivedMessage, Transaction
from oncewire.testing import AmqpNetwork
from oncewire.wire import Symbol, encode_message

LONG = 60.0
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Spans:
    """What a program's tracer has finished."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def named(self, name: str) -> Any:
        (found,) = [span for span in self._exporter.get_finished_spans() if span.name == name]
        return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(scope="module")
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(2) as found:
        yield found


class Received:
    """A delivery with this message."""

    def __init__(self, message: Message) -> None:
        self.message = message


async def test_a_trace_goes_from_the_sender_over_routers_to_the_subscriber(network: AmqpNetwork, spans: Spans) -> None:
    first, second = network.urls
    async with connect(first) as shop, connect(second) as mail, mail.subscriber("orders") as orders:
        publisher = await shop.publisher("orders")

        async def send() -> None:
            with sending("orders", {"own": 1}, provider=spans.provider) as properties:
                await publisher.send(b"x", application_properties=properties, timeout=LONG)

        task = asyncio.create_task(send())
        delivery = await orders.receive(LONG)
        assert delivery.message.application_properties["own"] == 1
        with processing(delivery, "orders", provider=spans.provider) as span:
            span.set_attribute("order", 7)
            await delivery.accept()
        await task
    sent, processed = spans.named("send orders"), spans.named("process orders")
    assert processed.context.trace_id == sent.context.trace_id
    assert processed.parent.span_id == sent.context.span_id
    assert (sent.kind.name, processed.kind.name) == ("PRODUCER", "CONSUMER")
    assert dict(sent.attributes) == {
        "messaging.system": "oncewire",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
    }
    assert processed.attributes["messaging.message.id"] == delivery.tag.hex()
    assert processed.attributes["order"] == 7


async def test_a_consumer_processes_and_publishes_in_the_trace_of_its_message(
    network: AmqpNetwork, spans: Spans, tmp_path: Path
) -> None:
    def process(tx: Transaction, message: ReceivedMessage) -> None:
        tx.publish("bills", message.body, application_properties=context())

    store = f"sqlite:///{tmp_path}/c.db"
    consumer = Consumer(network.urls, store=store, name="billing", topics=["paid"])
    async with connect(network.urls) as client, client.subscriber("bills") as bills, consumer:
        running = asyncio.create_task(consumer.run(traced(process, provider=spans.provider)))
        with sending("paid", provider=spans.provider) as properties:
            await (await client.publisher("paid")).send("x", application_properties=properties, timeout=LONG)
        bill = await bills.receive(LONG)
        await bill.accept()
        consumer.stop()
        await running
    sent, processed = spans.named("send paid"), spans.named("process paid")
    assert processed.parent.span_id == sent.context.span_id
    carried = bill.message.application_properties["traceparent"]
    assert str(carried).startswith(f"00-{sent.context.trace_id:032x}-{processed.context.span_id:016x}-")


def test_what_a_router_has_written_counts_before_what_the_publisher_has(spans: Spans) -> None:
    message = Message(
        b"x",
        application_properties={"traceparent": f"00-{TRACE}-{1:016x}-01", "tracestate": "a=b"},
        annotations={Symbol("traceparent"): f"00-{TRACE}-{2:016x}-01"},
    )
    with processing(Received(message), "t", provider=spans.provider):
        pass
    found = spans.named("process t")
    assert (f"{found.context.trace_id:032x}", found.parent.span_id) == (TRACE, 2)
    assert found.context.trace_state.get("a") == "b"


@pytest.mark.parametrize("stated", ["", "rubbish", 5, None])
def test_a_message_without_a_context_begins_a_trace(spans: Spans, stated: object) -> None:
    message = Message(b"x", application_properties={"traceparent": stated})
    assert encode_message(message)
    with processing(Received(message), provider=spans.provider):
        pass
    assert spans.named("process").parent is None


def test_an_error_that_leaves_the_block_is_that_of_the_span(spans: Spans) -> None:
    with pytest.raises(KeyError), processing(Received(Message(b"x")), "t", provider=spans.provider):
        raise KeyError("x")
    found = spans.named("process t")
    assert (found.status.status_code.name, found.attributes["error.type"]) == ("ERROR", "KeyError")


def test_outside_of_a_span_there_is_no_context() -> None:
    assert context() == {}


@pytest.mark.cold
def test_the_client_loads_no_opentelemetry_and_without_it_the_error_says_what_to_install() -> None:
    program = (
        "import sys, oncewire.client as c; c.connect('h'); assert not [n for n in sys.modules if n[:5] == 'opent']\n"
    )
    program += "sys.modules['opentelemetry'] = None\n"
    program += "try: import oncewire.client.tracing\n"
    program += "except c.UsageError as error: print(error.fix)\n"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "run pip install opentelemetry-api\n"
