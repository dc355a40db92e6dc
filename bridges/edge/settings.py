"""The settings of an edge; those of its parts are in the files of their kinds (`kinds.py`)."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace

from bridges.doors.rules import http_rules
from bridges.doors.settings import of_http, of_routers, of_tls
from bridges.workqueue.mongodb import PREFIX as MONGODB_PREFIX
from bridges.workqueue.opening import check_address
from oncewire.settings.parsers import NotAllowed, duration, one_of, text
from oncewire.settings.schema import REQUIRED, Applies, Setting
from oncewire.store.errors import InvalidRequest

PROGRAM = "edge"
HTTP_PORT = 7074
LEASE_S = 10.0
"""Short enough that readers hardly notice a takeover, and five times what a busy store takes to answer."""
USERS_FILE = "http.users_file"
RULES = "http.rules"


def _store(value: object) -> str:
    if not isinstance(value, str) or value.startswith(MONGODB_PREFIX):
        raise TypeError
    try:
        check_address(value)
    except InvalidRequest as error:
        raise NotAllowed(error.why) from error
    return value


_OF_EDGE = (
    Setting(
        "edge.name",
        text(r"[A-Za-z0-9_.-]{1,64}"),
        socket.gethostname(),
        "1 to 64 of A-Z a-z 0-9 _ . -",
        "Name of this process in logs, metrics and at routers; each edge has another. Default: this machine's name.",
    ),
    Setting(
        "edge.store",
        _store,
        REQUIRED,
        "sqlite:///FILE or postgresql://USER@HOST/DATABASE",
        "All that the edge remembers. Edges that share a PostgreSQL database take over from each other.",
        secret=True,
    ),
    *of_routers("edge"),
    Setting("edge.vhost", text(r"\S*"), "", "a name, or empty", "Virtual host; empty = that of the routers' URL."),
    Setting(
        "edge.lease",
        duration(0.5, 3600),
        LEASE_S,
        "a time from 500ms to 1h",
        "An edge that the store has not heard of for so long has lost what it owns: another one takes over. It renews "
        "three times as often. With 5s or less the third takeover within 10 s may wait for 30 s (A-8a).",
    ),
    *of_http(HTTP_PORT, USERS_FILE),
    Setting(
        RULES,
        http_rules,
        (),
        'tables {users, read, manage}: lists of texts, "*" for any characters; in a text as JSON',
        "Who may read which journals over HTTP, and trim, seek in and delete them; with a rule, what none allows is "
        "refused. None = whoever logs in, and without logins programs of the same machine.",
        applies=Applies.NOW,
    ),
    *of_tls("http.tls"),
    Setting(
        "log.level",
        one_of("debug", "info", "warning", "error"),
        "info",
        "debug, info, warning or error",
        "What is logged.",
        applies=Applies.NOW,
    ),
    Setting("log.format", one_of("text", "json"), "text", "text or json", "How it is written, to stderr."),
)


def _in_tables(settings: Iterable[Setting]) -> Mapping[str, Setting]:
    """By key; the settings of a table stand together."""
    tables = list(dict.fromkeys(each.table for each in settings))
    ordered = sorted(settings, key=lambda each: tables.index(each.table))
    return {each.key: replace(each, program=PROGRAM) for each in ordered}


EDGE: Mapping[str, Setting] = _in_tables(_OF_EDGE)
"""By their keys."""
FLAGS: Mapping[str, Setting] = {key.replace(".", "_"): each for key, each in EDGE.items()}
"""By the names of the command's parameters."""
