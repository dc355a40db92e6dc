"""Topics and patterns: a topic is a string; nothing creates it.

`.` and `/` separate tokens (not both in one pattern), `*` stands for one token, `#` for any rest, also none.
"""

from __future__ import annotations

from functools import lru_cache

MAX_TOPIC_BYTES = 255
"""Long enough for any hierarchy seen in the field, short enough to be a key in logs and metrics."""
MAX_TOKENS = 16
"""Bounds the work of one match."""


class TopicError(ValueError):
    """A topic or pattern that cannot be used; the message says why and what is allowed."""


def check_topic(topic: str) -> None:
    """Raise TopicError unless `topic` may be published to (no wildcards)."""
    check_pattern(topic)
    if is_pattern(topic):
        raise TopicError(f"topic {topic!r} has a wildcard; publish to a topic without the tokens * and #")


def check_pattern(pattern: str) -> None:
    """Raise TopicError unless `pattern` may be subscribed to."""
    if not pattern:
        raise TopicError("the topic is empty; give a name such as orders or orders.eu")
    if len(pattern.encode()) > MAX_TOPIC_BYTES:
        raise TopicError(f"the topic is longer than {MAX_TOPIC_BYTES} bytes")
    if is_pattern(pattern) and "." in pattern and "/" in pattern:
        raise TopicError(f"pattern {pattern!r} mixes . and /; use one separator")
    if len(_tokens(pattern)) > MAX_TOKENS:
        raise TopicError(f"topic {pattern!r} has more than {MAX_TOKENS} tokens")


def is_pattern(pattern: str) -> bool:
    """True when a whole token of it is a wildcard."""
    return any(token in ("*", "#") for token in _tokens(pattern))


def _tokens(pattern: str) -> list[str]:
    return pattern.replace("/", ".").split(".")


@lru_cache(maxsize=4096)
def _pattern_tokens(pattern: str) -> tuple[str, ...]:
    return tuple(_tokens(pattern))


def matches(pattern: str, topic: str) -> bool:
    """True when a subscription to `pattern` gets messages of `topic`."""
    if pattern == topic:
        return True
    if "*" not in pattern and "#" not in pattern:
        return False
    return _match(_pattern_tokens(pattern), tuple(_tokens(topic)))


def _match(pattern: tuple[str, ...], topic: tuple[str, ...]) -> bool:
    """Positions of the topic reachable after each pattern token: linear in both, whatever the number of `#`."""
    reachable = {0}
    for part in pattern:
        if part == "#":
            reachable = set(range(min(reachable), len(topic) + 1))
        else:
            reachable = {at + 1 for at in reachable if at < len(topic) and part in ("*", topic[at])}
        if not reachable:
            return False
    return len(topic) in reachable
