"""What filters cost a router for each message: 1, 10 and 1,000 distinct ones over the same messages.

    python benchmarks/bench_filters.py [--messages N]

Prints microseconds of CPU for each message in all, and for each filter. What is measured is what an egress does with a
message that a filter excludes: it is read once, and each distinct filter is evaluated once.
"""

from __future__ import annotations

import argparse
import sys
import time

from delivery_records.subscriber.filters import MessageFilters
from oncewire.filters.filter_set import canonical_text
from oncewire.wire import Described, Symbol, vocabulary
from oncewire.wire.message import Message, Properties, encode_message
from router.clients.message_filters import AmqpFilters

KINDS = {
    "one property": "color = 'c{0}'",
    "three conditions": "color = 'c{0}' AND size BETWEEN {0} AND 9 OR region LIKE 'r{0}%'",
    "fields of JMS": "JMSPriority > 7 AND JMSType = 'type{0}'",
}
COUNTS = (1, 10, 1_000)
REPEATS = 3


def messages(count: int) -> list[bytes]:
    """Messages with five application properties and a body of 1 KiB."""
    return [
        encode_message(
            Message(
                bytes(1024),
                properties=Properties(message_id=f"m{number}", subject="orders"),
                application_properties={
                    "color": "red",
                    "size": number % 10,
                    "region": "europe",
                    "customer": f"c{number}",
                    "urgent": False,
                },
            )
        )
        for number in range(count)
    ]


def cost(selector: str, filters: int, payloads: list[bytes]) -> float:
    """CPU seconds for each message with so many distinct filters: the lowest of some runs."""
    engine = MessageFilters(AmqpFilters())
    shared = [
        engine.of(canonical_text({Symbol("s"): Described(vocabulary.SELECTOR_FILTER, selector.format(number))}))
        for number in range(filters)
    ]
    found = []
    for _ in range(REPEATS):
        started = time.process_time()
        for payload in payloads:
            for each in shared:
                engine.matches(each, payload, 0)
            engine.forget()
        found.append((time.process_time() - started) / len(payloads))
    return min(found)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=10_000, help="for one filter; fewer for more")
    wanted = max(10, parser.parse_args().messages)
    sys.stdout.write(f"{'selector':<20}{'filters':>8}{'us/message':>12}{'us/filter':>11}\n")
    for kind, selector in KINDS.items():
        for count in COUNTS:
            seconds = cost(selector, count, messages(max(10, wanted // count)))
            sys.stdout.write(f"{kind:<20}{count:>8}{seconds * 1e6:>12.1f}{seconds * 1e6 / count:>11.2f}\n")


if __name__ == "__main__":
    main()
