"""The checker's verdict on an application's own lists: what it sent, and what each of its readers has processed."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from chaos.checker import EXAMPLES_SHOWN, PublisherHistory, SubscriberHistory, Verdict, judge
from chaos.clients.events import Accepted, Confirmed, Event, Incarnation, Processed, Received, Sent

SENDER = "sender"
READER = "reader"


class NotExactlyOnce(AssertionError):
    """A message was lost, duplicated, reordered, or never sent. The text names them."""


def exactly_once_verdict(
    sent: Sequence[Hashable] | Mapping[str, Sequence[Hashable]],
    processed: Sequence[Hashable] | Mapping[str, Sequence[Hashable]],
    *,
    ordered: bool = True,
) -> Verdict:
    """Judge what an application did with messages: each reader has processed each message once, in order.

    Args:
        sent: what identifies each message, its order number for example, in the order of sending; with several
            publishers a list for each of them, by name.
        processed: the same as its effects show it, rows of a table for example; with several readers a list for each.
        ordered: whether each publisher's messages must be in order; False for readers that share a subscription.

    Returns:
        The verdict of the checker, with its counts.

    Raises:
        NotExactlyOnce: it is not so; what is wrong is listed.
        ValueError: two messages have the same identity.
    """
    publishers = dict(sent) if isinstance(sent, Mapping) else {SENDER: sent}
    readers = dict(processed) if isinstance(processed, Mapping) else {READER: processed}
    places = _places(publishers)
    verdict = judge(
        [_publisher(name, messages) for name, messages in publishers.items()],
        [_reader(name, messages, places, publishers, ordered=ordered) for name, messages in readers.items()],
    )
    if not verdict.passed:
        raise NotExactlyOnce("\n".join(_findings(verdict, publishers, readers, places)))
    return verdict


def _places(publishers: Mapping[str, Sequence[Hashable]]) -> dict[Hashable, tuple[str, int]]:
    places: dict[Hashable, tuple[str, int]] = {}
    for name, messages in publishers.items():
        for number, message in enumerate(messages, 1):
            if message in places:
                raise ValueError(
                    f"{message!r} was sent twice: a copy of one could not be distinguished from the other. Give each"
                    " message something of its own, an order number for example"
                )
            places[message] = name, number
    return places


def _publisher(name: str, messages: Sequence[Hashable]) -> PublisherHistory:
    """All were sent and accepted, after readers were confirmed."""
    events: list[Event] = []
    for number, message in enumerate(messages, 1):
        events += [Sent(1.0, number, repr(message)), Accepted(1.0, number)]
    return PublisherHistory(name, [repr(message) for message in messages], events)


def _reader(
    name: str,
    messages: Sequence[Hashable],
    places: Mapping[Hashable, tuple[str, int]],
    publishers: Mapping[str, Sequence[Hashable]],
    *,
    ordered: bool,
) -> SubscriberHistory:
    events: list[Event] = [Incarnation(0.0, 1), Confirmed(0.0)]
    for message in messages:
        publisher, number = places.get(message, (next(iter(publishers), SENDER), 0))
        events += [Received(2.0, publisher, number, repr(message)), Processed(2.0, publisher, number, repr(message))]
    return SubscriberHistory(name, frozenset(publishers), events, is_shared=not ordered)


def _findings(
    verdict: Verdict,
    publishers: Mapping[str, Sequence[Hashable]],
    readers: Mapping[str, Sequence[Hashable]],
    places: Mapping[Hashable, tuple[str, int]],
) -> list[str]:
    """One line for each thing that is wrong, in the application's own names."""
    lines = []
    for each in verdict.subscribers:
        for count, examples in each.examples.items():
            named = [_message(publishers, example) for example in examples]
            if count == "unexpected":
                named = [repr(found) for found in readers[each.name] if found not in places][:EXAMPLES_SHOWN]
            lines.append(f"{each.name}: {getattr(each, count)} {count}: {', '.join(named)}")
    return lines


def _message(publishers: Mapping[str, Sequence[Hashable]], example: str) -> str:
    name, _, number = example.rpartition("/")
    return repr(publishers[name][int(number) - 1]) + (f" of {name}" if len(publishers) > 1 else "")
