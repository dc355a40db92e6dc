"""Topics and patterns: a topic is a string; nothing creates it.

`.` and `/` separate tokens (not both in one pattern), `*` stands for one token, `#` for any rest, also none. In a
virtual host the host's name and a separator stand before it: no pattern matches a topic of another one.
"""

from __future__ import annotations

from functools import lru_cache

MAX_TOPIC_BYTES = 255
"""Long enough for any hierarchy seen in the field, short enough to be a key in logs and metrics."""
MAX_TOKENS = 16
"""Bounds the work of one match."""


VHOST_SEPARATOR = "\x1f"
"""Between a virtual host and a topic; no name and no topic has it."""


class TopicError(ValueError):
    """A topic or pattern that cannot be used; the message says why and what is allowed."""


def in_vhost(vhost: str, topic: str) -> str:
    """The topic as routers know it; in the default virtual host (an empty name) it stands alone."""
    assert VHOST_SEPARATOR not in vhost + topic
    return vhost + VHOST_SEPARATOR + topic if vhost else topic


def split_vhost(topic: str) -> tuple[str, str]:
    """The virtual host, empty for the default one, and the topic as clients know it."""
    vhost, _, bare = topic.rpartition(VHOST_SEPARATOR)
    return vhost, bare


def check_topic(topic: str) -> None:
    """Raise TopicError unless `topic` may be published to (no wildcards)."""
    check_pattern(topic)
    _, topic = split_vhost(topic)
    if is_pattern(topic):
        raise TopicError(f"topic {topic!r} has a wildcard; publish to a topic without the tokens * and #")


def check_pattern(pattern: str) -> None:
    """Raise TopicError unless `pattern` may be subscribed to."""
    _, pattern = split_vhost(pattern)
    if not pattern:
        raise TopicError("the topic is empty; give a name such as orders or orders.eu")
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError:
        raise TopicError("the topic has half of a surrogate pair, which UTF-8 cannot write; leave it out") from None
    if size > MAX_TOPIC_BYTES:
        raise TopicError(f"the topic is longer than {MAX_TOPIC_BYTES} bytes")
    if is_pattern(pattern) and "." in pattern and "/" in pattern:
        raise TopicError(f"pattern {pattern!r} mixes . and /; use one separator")
    if len(_tokens(pattern)) > MAX_TOKENS:
        raise TopicError(f"topic {pattern!r} has more than {MAX_TOKENS} tokens")


def is_pattern(pattern: str) -> bool:
    """True when a whole token of it is a wildcard."""
    return any(token in ("*", "#") for token in _tokens(split_vhost(pattern)[1]))


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
    vhost, topic = split_vhost(topic)
    own, bare = split_vhost(pattern)
    return own == vhost and _match(_pattern_tokens(bare), tuple(_tokens(topic)))


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
