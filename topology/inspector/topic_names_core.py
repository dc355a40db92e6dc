"""Topics as operators read and write them: one of a virtual host is `$HOST/TOPIC`, one of the default host its name.

Clients cannot use addresses that begin with `$`, so that no topic of the default virtual host looks so.
"""

from __future__ import annotations

import re

from delivery_records.model.topics import VHOST_SEPARATOR, split_vhost

_NAMED = re.compile(r"\$([A-Za-z0-9_.-]{1,64})/(.*)", re.DOTALL)


def topic_name(topic: str) -> str:
    """A topic of routers as operators know it."""
    vhost, bare = split_vhost(topic)
    return f"${vhost}/{bare}" if vhost else bare


def topic_named(name: str) -> str:
    """The topic as routers know it that operators call so."""
    found = _NAMED.fullmatch(name)
    return name if found is None else found[1] + VHOST_SEPARATOR + found[2]


def topic_facts(topic: str) -> dict[str, object]:
    """Topic and virtual host, each for itself; the virtual host is empty for the default one."""
    vhost, bare = split_vhost(topic)
    return {"topic": bare, "vhost": vhost}
