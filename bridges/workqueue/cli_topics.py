"""`oncewire queue feed`, `publish` and `unpublished`: between topics and queues."""

from __future__ import annotations

import asyncio

import click

from bridges.workqueue.cli_group import router_options, routers_of, run, store_command, transact
from bridges.workqueue.cli_shapes import payload_words, show
from bridges.workqueue.feed import Feed
from bridges.workqueue.items import DEFAULT_PRIORITY, MAX_PRIORITY
from bridges.workqueue.outbox import OutboxPublisher
from bridges.workqueue.queue import Queue
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.unpublished import (
    OutboxTopic,
    Unpublished,
    drop_unpublished,
    list_unpublished,
    outbox_numbers,
    publish_again,
)
from oncewire.cli.errors import CliError
from oncewire.client import ClientError
from oncewire.wire import DecodeError, body_octets, decode_message


@store_command("feed", "Push the messages of a topic, until Ctrl-C.")
@click.argument("topic")
@click.argument("name", metavar="QUEUE")
@router_options
@click.option("--priority", type=click.IntRange(0, MAX_PRIORITY), default=DEFAULT_PRIORITY, show_default=True)
@click.option("--unsubscribe", is_flag=True, help="End the subscription for good, in place of feeding.")
def feed(
    url: str,
    as_json: bool,
    topic: str,
    name: str,
    routers: tuple[str, ...],
    vhost: str | None,
    priority: int,
    unsubscribe: bool,
) -> None:
    """Push each message of TOPIC into QUEUE as exactly one item. The subscription stays when this ends."""
    urls, login = routers_of(routers, vhost)

    async def work(store: QueueStore) -> None:
        found = Feed(Queue(store, name), topic, urls, priority=priority, **login)
        words = {"topic": topic, "queue": name}
        try:
            if unsubscribe:
                await found.unsubscribe()
                show({**words, "unsubscribed": True}, as_json=as_json)
                return
            running = asyncio.create_task(found.run())
            subscribed = asyncio.create_task(found.subscribed.wait())
            await asyncio.wait([running, subscribed], return_when=asyncio.FIRST_COMPLETED)
            if subscribed.done():
                show({**words, "subscribed": True}, as_json=as_json)
            await running
        except ClientError as error:
            raise CliError(error.what, error.why, error.fix) from None

    run(url, work)


@store_command("publish", "Publish the messages of the outbox, until Ctrl-C.")
@router_options
@click.option("--until-empty", is_flag=True, help="Stop when every message has its outcome.")
@click.option(
    "--require",
    type=click.IntRange(0, 0xFFFFFFFF),
    default=0,
    metavar="N",
    help="Messages wait until their topic has N subscriptions. [0: without one they count as published]",
)
def publish(
    url: str, as_json: bool, routers: tuple[str, ...], vhost: str | None, until_empty: bool, require: int
) -> None:
    """Publish the messages that workers decided on, each exactly once."""
    urls, login = routers_of(routers, vhost)

    async def work(store: QueueStore) -> int:
        found = OutboxPublisher(store, urls, require=require, **login)
        running = asyncio.create_task(found.run())
        waiting = [asyncio.create_task(found.flush())] if until_empty else []
        try:
            await asyncio.wait([running, *waiting], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
        except ClientError as error:
            raise CliError(error.what, error.why, error.fix) from None
        finally:
            for task in (running, *waiting):
                task.cancel()
            await asyncio.gather(running, *waiting, return_exceptions=True)
        return len(await store.transact(list_unpublished))

    show({"unpublished": run(url, work)}, as_json=as_json)


@store_command("unpublished", "Messages that ended otherwise than accepted.")
@click.argument("topic", required=False)
@click.argument("number", type=int, required=False)
@click.option("--again", is_flag=True, help="Publish this one again, behind all others of its topic.")
@click.option("--drop", is_flag=True, help="Delete this one.")
def unpublished(url: str, as_json: bool, topic: str | None, number: int | None, again: bool, drop: bool) -> None:
    """Print such messages, or decide on the one with this NUMBER for TOPIC."""
    if topic is None or number is None:
        if topic is not None or again or drop:
            raise CliError(
                "nothing was decided", "it takes a topic and a number", "give TOPIC NUMBER, and --again or --drop"
            )
        ended, topics = transact(url, lambda do: (list_unpublished(do), outbox_numbers(do)))
        for each in ended:
            show(_words(each), as_json=as_json)
        for found in topics:
            if found.unsent:
                _show_unsent(found)
        return
    if again == drop:
        raise CliError("nothing was decided", "it takes one of --again and --drop", "give one of them")
    if again:
        transact(url, lambda do: publish_again(do, topic, number))
    else:
        transact(url, lambda do: drop_unpublished(do, topic, number))
    show({"topic": topic, "number": number, "again": again}, as_json=as_json)


def _show_unsent(topic: OutboxTopic) -> None:
    """Notify on the standard error of messages that are not published yet, and so in no list (W-27)."""
    who = "a process publishes" if topic.has_publisher else "no process publishes: run `oncewire queue publish`"
    since = "" if topic.oldest_s is None else f", the first one for {topic.oldest_s:.0f} s"
    click.echo(f"{topic.unsent} messages for {topic.topic} wait to be published{since}; {who}", err=True)


def _words(each: Unpublished) -> dict[str, object]:
    try:
        shown = body_octets(decode_message(each.payload).body)
    except DecodeError:
        shown = each.payload
    reason = ": ".join(part for part in (each.outcome.condition, each.outcome.description) if part)
    return {
        "topic": each.topic,
        "number": each.number,
        "outcome": each.outcome.kind.value,
        "reason": reason,
        **payload_words(shown),
    }
