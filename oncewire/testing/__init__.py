"""Test services that use Oncewire: networks in the test's process, crashes, and a verdict on what was processed.

The fixtures come with the package; pytest finds them by itself. `AmqpNetwork` is for fixtures of your own. Routers need
``oncewire[router]``.
"""

from typing import TYPE_CHECKING

from oncewire.testing.parts import ServerPackageMissing, server_part

if TYPE_CHECKING:
    from chaos.application_verdict import NotExactlyOnce, exactly_once_verdict
    from router.commands.in_process import AmqpNetwork, NotIdle
else:
    _PARTS = {
        "AmqpNetwork": "router.commands.in_process",
        "NotExactlyOnce": "chaos.application_verdict",
        "NotIdle": "router.commands.in_process",
        "exactly_once_verdict": "chaos.application_verdict",
    }

    def __getattr__(name):
        """Import the routers when they are first asked for: pytest starts without them."""
        if name not in _PARTS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(server_part(_PARTS[name]), name)


__all__ = ["AmqpNetwork", "NotExactlyOnce", "NotIdle", "ServerPackageMissing", "exactly_once_verdict"]
