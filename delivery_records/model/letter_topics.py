"""Which topics and subscriptions letters go to (rule I-3e)."""

from __future__ import annotations

from delivery_records.model.limits import TopicPolicy
from delivery_records.model.topics import matches


def gets_letters(policy: TopicPolicy, topic: str, pattern: str) -> bool:
    """Whether a subscription to `pattern` is a dead-letter subscription of publishers to `topic`.

    One that matches the topic itself has had the message. `policy` is that of the topic.
    """
    letters = policy.dead_letter
    return bool(letters) and matches(pattern, letters) and not matches(pattern, topic)
