"""Oncewire: exactly-once publish-subscribe over a network of AMQP 1.0 routers, as applications see it.

``oncewire.connect()`` is where applications start; see ``oncewire.client``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oncewire.client.connecting import connect
else:  # where type checkers do not see it: with it they would take every name for one of this package

    def __getattr__(name):
        """Import the client when it is first asked for: the command line and the router start without it."""
        if name == "connect":
            from oncewire.client.connecting import connect

            return connect
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return [*globals(), *__all__]


__all__ = ["connect"]
