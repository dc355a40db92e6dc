"""`oncewire queue unsubscribe` and `unpublished`: what an operator decides about feeds and the outbox of edges."""

from __future__ import annotations

import click

from bridges.workqueue.cli_group import router_options, routers_of, run, store_command, transact
from bridges.workqueue.cli_shapes import payload_words, show
from bridges.workqueue.feed import Feed
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
from oncewire.wire import DecodeError, decode_message
from oncewire.wire.json_values import body_octets


@store_command("unsubscribe", "End the subscription of a feed for good.")
@click.argument("topic")
@click.argument("name", metavar="QUEUE")
@router_options
def unsubscribe(url: str, as_json: bool, topic: str, name: str, routers: tuple[str, ...], vhost: str | None) -> None:
    """End the feed from TOPIC into QUEUE: publishers of the topic wait for it no longer, and edges that run it stop."""
    urls, login = routers_of(routers, vhost)

    async def work(store: QueueStore) -> None:
        try:
            await Feed(Queue(store, name), topic, urls, **login).unsubscribe()
        except ClientError as error:
            raise CliError(error.what, error.why, error.fix) from None

    run(url, work)
    show({"topic": topic, "queue": name, "unsubscribed": True}, as_json=as_json)


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
    who = "a process publishes" if topic.has_publisher else "no process publishes: run an edge with [[publish]]"
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
