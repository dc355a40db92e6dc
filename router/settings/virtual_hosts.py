"""Virtual hosts of the settings, and which of them a client's connection is for: by its user, and by its open."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from oncewire.settings.parsers import NotAllowed
from oncewire.settings.rule_tables import names, tables
from oncewire.wire.vocabulary import ANONYMOUS
from router.settings.groups import fits

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
"""Without the signs that stand around it: `user@NAME`, `vhost:NAME`, `$NAME/topic`."""
HOSTNAME = re.compile(r"[A-Za-z0-9_.:-]{1,255}")
ASKED = "vhost:"
"""A hostname that begins so asks for a virtual host and for nothing else, as clients of RabbitMQ do."""
DEFAULT = frozenset({"", "/"})
"""Names of the default virtual host behind it."""
MAX_VHOSTS = 1000
"""Each open looks at all of them, and each has metrics of its own."""
MAX_SHOWN = 100
"""Characters of a client's hostname in the log."""


@dataclass(frozen=True, slots=True)
class VirtualHost:
    """One virtual host.

    Attributes:
        name: it is the same at every router.
        hostnames: in small letters; a client that opens a connection to one of them means this virtual host.
        users: who may open it: names, `*` for any characters, and groups.
    """

    name: str
    hostnames: tuple[str, ...]
    users: tuple[str, ...]


class VhostRefused(Exception):
    """A user may not open the virtual host it asks for. The text is for the log."""


def vhost_of(vhosts: Sequence[VirtualHost], user: str, hostname: str, groups: Collection[str] = ()) -> str:
    """The virtual host of a connection; empty: the default one.

    Args:
        vhosts: the setting.
        user: as logged in; empty without a login.
        hostname: of the client's open; empty without one.
        groups: of the user.

    Raises:
        VhostRefused: there is no such virtual host, or the user may not open it.
    """
    by_name = {each.name: each for each in vhosts}
    bound = user.rpartition("@")[2] if "@" in user else ""
    bound = bound if bound in by_name else ""
    asked = _asked(by_name, hostname)
    if asked is None:
        asked = bound
    elif bound and asked != bound:
        raise VhostRefused(f"the user {user} is bound to the virtual host {bound} by its name: see the setting vhosts")
    if asked and not fits(by_name[asked].users, user, groups):
        raise VhostRefused(f"users of the virtual host {asked} in the setting vhosts has no {user or ANONYMOUS}")
    return asked


def _asked(by_name: Mapping[str, VirtualHost], hostname: str) -> str | None:
    """What the hostname asks for; None: it is a host's name and nothing else."""
    if hostname.startswith(ASKED):
        name = hostname.removeprefix(ASKED)
        if name not in DEFAULT and name not in by_name:  # never the default one in its place: others could read along
            raise VhostRefused(f"the setting vhosts has no {name[:MAX_SHOWN]!r}")
        return "" if name in DEFAULT else name
    if hostname in by_name:
        return hostname
    return next((each.name for each in by_name.values() if hostname.lower() in each.hostnames), None)


# --- setting ----------------------------------------------------------------------------------------------------------


def virtual_hosts(value: object) -> tuple[VirtualHost, ...]:
    """A list of tables {name, hostnames, users}; in a text as JSON."""
    found = tuple(_virtual_host(table) for table in tables(value, {"name", "hostnames", "users"}, MAX_VHOSTS))
    known: dict[str, str] = {}
    for each in found:
        for name in (each.name, *(set(each.hostnames) - {each.name})):
            if name in known:
                raise NotAllowed(f"{name} names two virtual hosts: {known[name]} and {each.name}")
            known[name] = each.name
    return found


def _virtual_host(table: Mapping[str, object]) -> VirtualHost:
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise NotAllowed("name has 1 to 64 of A-Z a-z 0-9 _ . -")
    hostnames = () if table.get("hostnames") == [] else names(table, "hostnames", ())
    wrong = [each for each in hostnames if not HOSTNAME.fullmatch(each) or each.startswith(ASKED)]
    if wrong:
        raise NotAllowed(f"{wrong[0]!r} is no host name")
    users = names(table, "users", (f"*@{name}",))
    return VirtualHost(name, tuple(each.lower() for each in hostnames), users)
