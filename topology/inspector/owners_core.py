"""Who owns a subscription, as its name shows, and what ends it when nobody needs it any more. A pure core."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_RANDOM = r"[0-9a-f]{16}"
_FEED = re.compile(rf"edge-{_RANDOM}/feed")
_JOURNAL = re.compile(rf"edge-{_RANDOM}/journal")
_RANDOM_CONTAINER = re.compile(rf"oncewire-{_RANDOM}/.*")
FEED = "feed of a work queue"
JOURNAL = "journal of an edge"
NAMED_BY_TOPIC = "Consumer or bridge node"
RANDOM = "program with a random container-id"
MEMBER = "member of a shared subscription"
CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Owner:
    """What is known of the owner of a subscription.

    Attributes:
        kind: what it is.
        command: what ends the subscription for good.
    """

    kind: str
    command: str


def owner_of(name: str, topic: str, member_of: str = "") -> Owner:
    """Return the owner of a subscription.

    Feeds, journals, and programs that choose no container-id, have names of their own; the link of a Consumer, a reader
    with a store or a bridge node has the name of its topic.

    Args:
        name: container-id/link-name.
        topic: it is to, without a virtual host.
        member_of: name of the shared subscription whose member it is.
    """
    kind = CLIENT
    if member_of:
        kind = MEMBER
    elif _FEED.fullmatch(name):
        kind = FEED
    elif _JOURNAL.fullmatch(name):
        kind = JOURNAL
    elif _RANDOM_CONTAINER.fullmatch(name):
        kind = RANDOM
    elif name.endswith(f"/{topic}"):
        kind = NAMED_BY_TOPIC
    return Owner(kind, f"oncewire manage delete subscription {shlex.quote(name)}")
