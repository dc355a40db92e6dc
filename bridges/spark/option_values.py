"""Turns the text of options into values. No Spark here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from urllib.parse import urlsplit

from bridges.node.shard_core import MAX_SHARDS
from oncewire.client.errors import UsageError
from oncewire.client.failover import parse_url
from oncewire.settings.parsers import NotAllowed, Parser, whole_number

MAX_TOPIC_BYTES = 255
"""What the network allows (docs/protocol.md, limits)."""
MAX_TOKENS = 16
"""As above."""
MAX_NUMBER = (1 << 63) - 1
MAX_TIME_US = 250_000_000_000_000_000
"""The year 9892: a time has four digits for the year."""
EMBEDDED = "embedded"
_REGEX_ONLY = re.compile(r"[\\\[\](){}^$+?|]|(?:^|[-_])\.\*")
"""No topic has such characters, and no pattern of the network means `.*` behind no word, as in `orders-.*`."""


class Guarantee(Enum):
    """What a pipeline promises about each message."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


class CommitMode(Enum):
    """When a batch of the sink counts as written."""

    PUBLISHED = "published"
    STAGED = "staged"


class TooLate(Enum):
    """Where to start at a time behind the newest message."""

    ERROR = "error"
    LATEST = "latest"


EARLIEST = "earliest"
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to start or end reading.

    Attributes:
        at: EARLIEST, LATEST or a position.
        journal: the journal that the position is of; None = whichever there is.
        subscription: the one the text names; None = it names none.
        others: of a text that names several, as those of a sharded subscription: all but the first.
    """

    at: str | int
    journal: str | None = None
    subscription: str | None = None
    others: tuple[Place, ...] = ()

    def of(self, name: str) -> Place | None:
        """The place for one of the names; None = the text does not say where for it."""
        if self.subscription is None:
            return self
        return next((place for place in (self, *self.others) if place.subscription == name), None)


def addresses(value: str) -> tuple[str, ...]:
    """`embedded`, or a comma list of addresses of nodes."""
    found = tuple(address.strip() for address in value.split(","))
    if len(set(found)) < len(found):
        raise NotAllowed("a node is named twice")
    if len(found) > MAX_SHARDS:
        raise NotAllowed(f"{len(found)} nodes are named, {MAX_SHARDS} are allowed")
    if len(found) > 1 and EMBEDDED in found:
        raise NotAllowed("an embedded node has no shards")
    return found


def one_of(kind: type[Enum]) -> Parser:
    """The value of an enum's member."""

    def parse(value: str) -> Enum:
        try:
            return kind(value.strip().lower())
        except ValueError:
            raise NotAllowed("it is none of what is allowed") from None

    return parse


def count(low: int, high: int) -> Parser:
    """A whole number from low to high."""
    within = whole_number(low, high)

    def parse(value: str) -> int:
        if re.fullmatch(r"[+-]?\d{1,20}", value.strip()) is None:
            raise NotAllowed("it is no whole number")
        return int(within(value))

    return parse


def yes_or_no(value: str) -> bool:
    """`true` or `false`."""
    found = {"true": True, "false": False}.get(value.strip().lower())
    if found is None:
        raise NotAllowed("it is neither true nor false")
    return found


def milliseconds(value: str) -> float:
    """A whole number of milliseconds, as seconds."""
    return float(count(0, MAX_NUMBER)(value)) / 1000


def _names(value: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    if not all(names):
        raise NotAllowed("one of the names is empty")
    for name in names:
        if len(name.encode()) > MAX_TOPIC_BYTES:
            raise NotAllowed(f"{name!r} is longer than {MAX_TOPIC_BYTES} bytes")
        if len(_tokens(name)) > MAX_TOKENS:
            raise NotAllowed(f"{name!r} has more than {MAX_TOKENS} parts")
    return names


def topics(value: str) -> tuple[str, ...]:
    """A comma list of topics."""
    found = _names(value)
    for topic in found:
        if is_pattern(topic):
            raise NotAllowed(f"{topic!r} has a wildcard: use subscribePattern for it")
    return found


def topic(value: str) -> str:
    """One topic."""
    found = topics(value)
    if len(found) != 1:
        raise NotAllowed("it must be one topic")
    return found[0]


def patterns(value: str) -> tuple[str, ...]:
    """A comma list of the network's patterns: `*` stands for one token, `#` for any rest.

    Regular expressions are refused: topics come into being when something is published, so nobody could say which ones
    an expression matches; the routers match their own wildcards.
    """
    found = _names(value)
    for pattern in found:
        if _REGEX_ONLY.search(pattern):
            wanted = _as_wildcards(pattern)
            hint = f": write {wanted}" if wanted else ""
            raise NotAllowed(
                f"{pattern!r} is a regular expression, and the network has its own wildcards, * one word and # any "
                f"rest{hint}"
            )
        if any(("*" in token or "#" in token) and len(token) > 1 for token in _tokens(pattern)):
            raise NotAllowed(f"{pattern!r} has a wildcard within a word: * and # stand between the dots alone")
        if is_pattern(pattern) and "." in pattern and "/" in pattern:
            raise NotAllowed(f"{pattern!r} mixes . and /")
    return found


def _as_wildcards(expression: str) -> str:
    """The pattern of the network that a simple regular expression means; empty = there is none."""
    if expression == ".*":
        return "#"
    if re.search(r"[-_]\.\*", expression):  # the network has no wildcard within a word
        return ""
    wanted = expression.replace("\\.", ".").replace(".*", ".#").replace("..#", ".#").replace("[^.]+", "*")
    return "" if _REGEX_ONLY.search(wanted) else wanted


def is_pattern(name: str) -> bool:
    """Whether one of its tokens is a wildcard."""
    return any(token in {"*", "#"} for token in _tokens(name))


def _tokens(name: str) -> list[str]:
    return name.replace("/", ".").split(".")


def pattern_matcher(pattern: str) -> re.Pattern[str]:
    """What the topics of a pattern look like, for `is_topic_of`; `#` also stands for nothing."""
    # Each word is written with the separator behind it, the last one gets one, too: then nothing is special.
    words = {"*": r"[^./]*[./]", "#": r"(?:[^./]*[./])*"}
    return re.compile("".join(words.get(word, re.escape(word) + "[./]") for word in _tokens(pattern)))


def is_topic_of(matcher: re.Pattern[str], topic: str) -> bool:
    """Whether a subscription to the matcher's pattern gets messages of a topic."""
    return matcher.fullmatch(f"{topic}.") is not None


def routers(value: str) -> tuple[str, ...]:
    """A comma list of URLs."""
    urls = tuple(url.strip() for url in value.split(","))
    try:
        for url in urls:
            parse_url(url)
    except UsageError as error:
        raise NotAllowed(str(error)) from error
    return urls


def journals(value: str) -> tuple[str, ...]:
    """A comma list of journals."""
    found = tuple(dict.fromkeys(name.strip() for name in value.split(",")))
    if not all(found):
        raise NotAllowed("one of the names is empty")
    return found


def regular_expression(value: str) -> str:
    """A regular expression for the whole of a name."""
    try:
        re.compile(value)
    except re.error as error:
        raise NotAllowed(f"it is no regular expression: {error}") from None
    return value


def edges(value: str) -> tuple[str, ...]:
    """A comma list of addresses of edges."""
    found = tuple(address.strip().rstrip("/") for address in value.split(","))
    for address in found:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path or parts.query:
            raise NotAllowed(f"{address!r} is no address of an edge's HTTP")
        if parts.username is not None:
            raise NotAllowed("it has a user, who would be in Spark's plans: see edge.user")
    if len({urlsplit(address).scheme for address in found}) > 1:
        raise NotAllowed("some have TLS and some do not")
    return found


def time_us(value: str) -> int:
    """Milliseconds since 1970, or a time of ISO 8601 (without a zone: UTC), as microseconds."""
    word = value.strip()
    if re.fullmatch(r"\d{1,18}", word):
        found = int(word) * 1000
    else:
        try:
            moment = datetime.fromisoformat(word)
        except ValueError:
            raise NotAllowed("it is no time") from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        found = round(moment.timestamp() * 1_000_000)
    if not 0 <= found < MAX_TIME_US:
        raise NotAllowed("it is before 1970, or too far away")
    return found


def times_us(value: str) -> dict[str, int]:
    """JSON: a time for each journal."""
    try:
        found = json.loads(value)
    except ValueError:
        raise NotAllowed("it is no JSON") from None
    if not isinstance(found, dict) or not found:
        raise NotAllowed('the JSON must have an entry, such as {"JOURNAL": 1700000000000}')
    times = {}
    for name, inner in found.items():
        given = inner.get("0") if isinstance(inner, dict) and len(inner) == 1 else inner
        if not isinstance(given, int | str) or isinstance(given, bool):
            raise NotAllowed(f"{name!r} has one partition, 0, and a time for it")
        times[name] = time_us(str(given))
    return times


def place(value: str) -> Place:
    """`earliest`, `latest`, or JSON: {"SUBSCRIPTION": POSITION, ...}, or as a checkpoint has it, or in Kafka's form.

    -2 stands for earliest and -1 for latest, as for Kafka.
    """
    word = value.strip()
    if word.lower() in {EARLIEST, LATEST}:
        return Place(word.lower())
    try:
        found = json.loads(word)
    except ValueError:
        raise NotAllowed("it is neither earliest nor latest nor JSON") from None
    if not isinstance(found, dict) or not found:
        raise NotAllowed('the JSON must have an entry, such as {"SUBSCRIPTION": 123}')
    first, *others = (_named_place(name, inner) for name, inner in found.items())
    return replace(first, others=tuple(others))


def _named_place(name: str, inner: object) -> Place:
    if isinstance(inner, dict) and inner and all(key.isdigit() for key in inner):
        return Place(_kafkas_position(name, inner), None, name)
    journal = None
    if isinstance(inner, dict):
        given, inner = inner.get("journal"), inner.get("seq")
        if not isinstance(given, str):
            raise NotAllowed("the journal of the position is missing")
        journal = given
    return Place(_position(inner), journal, name)


def _position(given: object) -> str | int:
    if isinstance(given, bool) or not isinstance(given, int) or not -2 <= given <= MAX_NUMBER:
        raise NotAllowed("a position is a whole number")
    return {-2: EARLIEST, -1: LATEST}.get(given, given)


def _kafkas_position(name: str, inner: dict[str, object]) -> str | int:
    """Kafka's {"TOPIC": {"0": OFFSET}}: the offset is that of the row behind the place."""
    if inner.keys() != {"0"}:
        raise NotAllowed(f"{name!r} has one partition, 0, and no partition {', '.join(sorted(inner.keys() - {'0'}))}")
    found = _position(inner["0"])
    return found if isinstance(found, str) else max(0, found - 1)
