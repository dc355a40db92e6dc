"""Edits of a router's drain (rule K-8a)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

DRAIN_EDITS: tuple[Edit, ...] = (
    Edit(
        "drained-when-answered",
        "K-8a",
        "        return (self.outgoing.mapped == 0 or self.mode is _AT_MOST_ONCE) and not self.outgoing.is_closing\n",
        "        return not any(e.state is SENT for entries in self.sessions.values() for e in entries.values())\n",
        "a subscriber without a map goes when it has answered, and gets what its publisher had not settled once more",
        aim=("drain", "drop-p", "stock_subscriber=1", "routers=2", "messages=8", "window=8"),
    ),
    Edit(
        "drained-in-doubt",
        "K-8a",
        "        return len(self.window) == self.window.unreceived and self.phase is not Phase.CLOSING\n",
        "        return True\n",
        "a publisher without a map goes before it is told, and must send what was received once more",
        aim=("drain", "stock_publisher=1", "routers=2", "messages=8", "window=8"),
    ),
    Edit(
        "drain-without-limit",
        "K-8a",
        "        is_over = turn.now >= self._limit_at\n",
        "        is_over = False\n",
        "one subscriber that does not answer keeps a router from stopping",
        aim=("drain", "stock_subscriber=1", "routers=2", "messages=8"),
    ),
    Edit(
        "attaches-while-draining",
        "K-8a",
        '        return "amqp:link:redirect", DRAINING  # K-8a\n',
        "        pass\n",
        "a client whose attach was on its way is served by a router that nobody stops any more",
        aim=("drain", "drop-p", "drop-s", "routers=2"),
    ),
)
