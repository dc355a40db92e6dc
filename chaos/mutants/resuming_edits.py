"""Edits of how a publisher without the capability resumes its link (rules A-3b and A-3c)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_WORLD = (
    "resuming_publisher=1",
    "presettled_publisher=0",
    "stock_subscriber=0",
    "settled_subscriber=0",
    "subscribers=2",
)

RESUMING_EDITS: tuple[Edit, ...] = (
    Edit(
        "the-map-of-the-reply-is-empty",
        "A-3b",
        "        return {} if held is None else {tag: held.decided.get(tag) for tag in held.tags}\n",
        "        return {}\n",
        "a publisher that keeps to AMQP sends again, under new tags, what its router already has",
        aim=("drop-p", "routers=1", *_WORLD),
    ),
    Edit(
        "outcomes-are-not-in-the-map",
        "A-3b",
        "{tag: held.decided.get(tag) for tag in held.tags}",
        "dict.fromkeys(slot.tag for slot in held.undecided)",
        "what was accepted while its publisher was away is sent a second time, under a new tag",
        aim=("drop-p", "away-p", "routers=1", *_WORLD),
    ),
    Edit(
        "a-stale-map-takes-what-it-does-not-name",
        "A-3b",
        "            return self._former  # A-4: what this attach presented may be older than the next one's map\n",
        "            return self._held\n",
        "an attach that is read late, and never shows life, makes the router forget what its map does not name",
        aim=("trim-p", "drop-p", "routers=1", *_WORLD),
    ),
    Edit(
        "resumed-in-the-order-of-the-map",
        "A-3b",
        "Window(request.unfinished if presented is None else presented.tags, turn.budget)",
        "Window(request.unfinished if presented is None else [*presented.decided, *(tag for tag in request.unfinished "
        "if tag in [slot.tag for slot in presented.undecided])], turn.budget)",
        "a map in another order than that of the stream makes an egress skip what its subscription lacks",
        aim=("drop-p", "routers=1", "prefetch=1", "window=8", "messages=8", *_WORLD),
    ),
    Edit(
        "resumed-where-nothing-is-held",
        "A-3c",
        "        held = ingress.resumption.held() if ingress is not None and ingress.session == session else None\n",
        "        held = ingress.resumption.held() if ingress is not None and ingress.session == session else None\n"
        "        held = held or Held({}, (), ())\n",
        "a router that holds nothing takes what another one has delivered for what never came",
        aim=("drop-p", "routers=2", *_WORLD),
    ),
)
