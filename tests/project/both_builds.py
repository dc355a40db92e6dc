"""Gives recorded inputs to the cores and prints a digest of all that comes out, as one line of JSON.

Run as a process of its own, with `--sources` where the sources are to run although compiled modules lie beside them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import random
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from typing import Any
from unittest.mock import patch

if "--sources" in sys.argv:
    from chaos.sources import prefer_sources

    prefer_sources()

from chaos.fuzz import router_messages
from chaos.fuzz.linked_routers import LINKED_ROUTERS
from chaos.fuzz.memory_loop import MemoryTransport
from chaos.fuzz.streams import established, feed, mutated_stream
from chaos.simulator.cores import SHIPPED
from chaos.simulator.schedule import run_seed
from delivery_records import records
from delivery_records.records import Records
from oncewire.wire import Role
from router.peers import neighbours

PORT = re.compile(rb"port\x60..", re.DOTALL)
"""Of a router: each run has another."""
STREAMS, SEEDS, CHANNELS, ROUTERS = 300, 40, 300, 3


def plain(value: object) -> object:
    """A value as what both builds write alike: a compiled class turns the ints of its float fields into floats."""
    if isinstance(value, Enum):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return [(plain(key), plain(each)) for key, each in value.items()]
    if isinstance(value, Set):
        return sorted(repr(plain(each)) for each in value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return [plain(each) for each in value]
    if dataclasses.is_dataclass(value):
        return [type(value).__name__, *(plain(getattr(value, each.name)) for each in dataclasses.fields(value))]
    if names := getattr(value, "FIELDS", ()):
        return [type(value).__name__, *(plain(getattr(value, name)) for name in names)]
    return value if value is None or isinstance(value, str | bytes | int | float) else type(value).__name__


class Recorder:
    """Stands before a core and digests what its methods return."""

    def __init__(self, core: Any, digest: Any, methods: Sequence[str]) -> None:
        vars(self).update(_core=core, _digest=digest, _methods=methods)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._core, name)
        if name not in self._methods:
            return value

        def call(*arguments: Any) -> Any:
            result = value(*arguments)
            result = result if isinstance(result, bytes) else list(result)
            self._digest.update(f"{name} {plain(result)}\n".encode())
            return result

        return call

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._core, name, value)


def conversations(digest: Any) -> None:
    """Recorded AMQP, legal and mutated, for engines with links under way: their bytes and their events."""
    for number in range(STREAMS):
        rng = random.Random(f"stream {number}")
        owner = established(rng.choice((Role.CLIENT, Role.SERVER)), rng)
        owner.engine = Recorder(owner.engine, digest, ("events", "data_to_send"))  # type: ignore[assignment]  # stands for it
        feed(owner, mutated_stream(rng), rng)


def simulated_runs(digest: Any) -> None:
    """Whole networks with faults: the effects of every turn of every router."""

    def recorded(**settings: Any) -> Any:
        return Recorder(Records(**settings), digest, ("handle", "handle_timer"))

    for seed in range(SEEDS):
        result = run_seed(seed, dataclasses.replace(SHIPPED, records=recorded))
        digest.update(f"{seed} {result.violation}\n".encode())


def channel_frames(digest: Any) -> None:
    """Frames between routers, legal and mutated: whether they are taken."""
    for number in range(CHANNELS):
        for batch in router_messages._inputs(random.Random(f"channel {number}")):
            digest.update(f"{router_messages.take(batch)}\n".encode())


def whole_routers(digest: Any) -> None:
    """Two linked routers with hostile and honest clients: all bytes on all connections."""
    write, chance = MemoryTransport.write, random.Random("both builds")

    def recorded(transport: MemoryTransport, data: bytes) -> None:
        digest.update(b"%d %s\n" % (len(data), PORT.sub(b"port", bytes(data))))
        write(transport, data)

    logging.disable(logging.CRITICAL)
    with (
        patch.object(MemoryTransport, "write", recorded),
        patch.object(secrets, "token_bytes", chance.randbytes),
        patch.object(neighbours, "token_bytes", chance.randbytes),
        patch.object(secrets, "randbelow", chance.randrange),
    ):
        random.seed("both builds")
        for number in range(ROUTERS):
            LINKED_ROUTERS.run(number)


def main() -> None:
    """Digest all of it."""
    runs: tuple[Callable[[Any], None], ...] = (conversations, simulated_runs, channel_frames, whole_routers)
    found: dict[str, object] = {"compiled": not str(records.__file__).endswith(".py")}
    for run in runs:
        digest = hashlib.sha256()
        run(digest)
        found[run.__name__] = digest.hexdigest()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
