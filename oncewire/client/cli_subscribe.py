"""What `oncewire sub` does."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oncewire.client import (
    Client,
    ClientEvent,
    Delivery,
    DeliveryGivenUp,
    NewIncarnation,
    Subscriber,
    SubscriptionExpired,
)
from oncewire.client.cli_publish import Reporter, Target, leave, say
from oncewire.client.source_terms import JOURNAL
from oncewire.wire import DecodeError, Message
from oncewire.wire.json_values import body_octets, to_json


class _Reporter(Reporter):
    def __call__(self, event: ClientEvent) -> None:
        if isinstance(event, SubscriptionExpired):
            say("the subscription expired; subscribing again")
        elif isinstance(event, NewIncarnation):
            say("this is a new subscription with the old name: messages sent in between are missing")
        elif isinstance(event, DeliveryGivenUp):
            say("a message that arrived before the last stop is not delivered again: it was settled meanwhile")
        else:
            super().__call__(event)


async def subscribe(
    target: Target,
    *,
    count: int | None,
    unsubscribe: bool,
    as_json: bool,
    open_on: Callable[[Client], Awaitable[Subscriber]],
) -> dict[str, Any]:
    """Print messages until `count`; returns the report. `open_on`: opens the subscriber."""
    is_topic = not target.topic.startswith(JOURNAL)
    is_new = target.journal is not None and not Path(target.journal).exists()  # noqa: ASYNC240  # on a local disk
    with target.open_journal() as store:
        if is_new and is_topic:
            say(
                f"the journal {target.journal} is new; if a former one was removed, publishers wait for its "
                f"subscription: `oncewire inspect subscriptions --topic {target.topic}` shows it, "
                "`oncewire manage delete subscription NAME` ends it"
            )
        async with target.connect(_Reporter(), store) as client:
            subscriber = await open_on(client)
            say(f"subscribed to {target.topic}" if is_topic else f"reading {target.topic}")
            try:
                received = await _print_messages(subscriber, count, as_json=as_json)
            except asyncio.CancelledError:
                if unsubscribe or target.name is None:
                    # No later run resumes it, and publishers would wait for it until it expires.
                    await leave(subscriber.unsubscribe())
                raise
            if unsubscribe:
                await subscriber.unsubscribe()
            if subscriber.statistics.copies:
                say(f"copies that were not printed: {subscriber.statistics.copies}")
            return {"topic": target.topic, "received": received}


async def _print_messages(subscriber: Subscriber, count: int | None, *, as_json: bool) -> int:
    received = 0
    async for delivery in subscriber:
        try:
            _print(delivery, as_json=as_json)
        except BrokenPipeError:  # the reader closed the pipe; the message is not accepted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return received
        await delivery.accept()
        received += 1
        if received == count:
            break
    return received


def _print(delivery: Delivery, *, as_json: bool) -> None:
    """One line on the standard output, out of our hands when this returns."""
    try:
        message = delivery.message
    except DecodeError as error:  # routers let it through, so whoever reads gets it, too
        say(f"a message is printed as it came: it is not valid AMQP: {error.description}")
        payload = bytes(delivery.payload)
        line: object = {"undecodable": base64.b64encode(payload).decode(), "reason": error.description}
        octets = json.dumps(line).encode() if as_json else payload
    else:
        octets = _json_line(delivery, message) if as_json else body_octets(message.body)
    sys.stdout.buffer.write(octets + b"\n")
    sys.stdout.buffer.flush()


def _json_line(delivery: Delivery, message: Message) -> bytes:
    line: dict[str, object] = {"body": message.body, "publisher": delivery.publisher}
    if message.application_properties:
        line["application_properties"] = message.application_properties
    if delivery.position is not None:
        line["position"] = delivery.position
        line["stored_at"] = None if delivery.stored_at is None else delivery.stored_at.isoformat()
        line["topic"] = delivery.topic
    if delivery.is_in_doubt:
        line["in_doubt"] = True
    if delivery.dead_letter is not None:
        line["dead_letter"] = asdict(delivery.dead_letter)
    return json.dumps(to_json(line), allow_nan=False).encode()
