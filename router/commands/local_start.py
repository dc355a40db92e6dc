"""`oncewire local start`: routers of a running local network that have ended are started again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPException
from urllib.request import urlopen

from oncewire.cli.errors import CliError
from oncewire.cli.local_registry import RunningNetwork, ask_to_start, running_network
from oncewire.cli.program import name_as_typed

READY_S = 60.0
"""As a start of the whole network may take."""
POLL_S = 0.1
ANSWER_S = 2.0


def start_again(names: Sequence[str]) -> list[str]:
    """Ask the process of the network that was started last, and wait; returns a line for each router that is ready.

    Args:
        names: ids of routers; none = all of them. One that runs stays as it is.

    Raises:
        CliError: there is no local network or no such router, or a router is not ready in time.
    """
    network = running_network()
    if network is None:
        why = "no `oncewire local` of this user runs"
        raise CliError("no router was started", why, f"start a network with `{name_as_typed()} local`")
    for name in names:
        if name not in network.ids:
            why = f"the local network of process {network.pid} has {', '.join(network.ids)}"
            raise CliError(f"router {name} was not started", why, "give one of these")
    wanted = names or network.ids
    try:
        ask_to_start(network, wanted)
    except OSError as error:
        raise CliError("no router was started", str(error), "see who owns the folder") from None
    ends_at = time.monotonic() + READY_S
    return [_wait_ready(network, name, ends_at) for name in wanted]


def _wait_ready(network: RunningNetwork, name: str, ends_at: float) -> str:
    place = network.ids.index(name)
    while not _is_ready(network.http[place]):
        if time.monotonic() > ends_at:
            raise CliError(
                f"router {name} is not ready after {READY_S:g} s",
                f"{network.http[place]}/readyz does not say so",
                f"see what `oncewire local` (process {network.pid}) has printed",
            )
        time.sleep(POLL_S)
    return f"{name} is ready at {network.urls[place]}"


def _is_ready(http: str) -> bool:
    try:
        with urlopen(f"{http}/readyz", timeout=ANSWER_S) as answer:  # noqa: S310  (an address of our own)
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, HTTPException):
        return False
