"""Who may see payloads of work queues, and replay ended items: by rules of access where they say so, else by role."""

from __future__ import annotations

from collections.abc import Callable

from router.operator.access import Access, AccessDenied, Caller
from router.operator.policy import ROLES_BY_RIGHT
from router.process.logs import EventLog, RouterEvent
from router.settings.access_rules import allowing_rule, decide
from router.settings.config import RouterConfig
from router.settings.groups import groups_of

QUEUE = "queue://"
"""Begins the address of a queue (docs/workqueue.md)."""


class QueueRights:
    """Rights of callers over HTTP."""

    def __init__(self, config: Callable[[], RouterConfig], access: Access, log: EventLog) -> None:
        """`config` has the settings of now."""
        self._config = config
        self._access = access
        self._log = log

    def may_view(self, caller: Caller, queue: str) -> bool:
        """Whether payloads and results of this queue are shown."""
        try:
            self._require(caller, "view", queue)
        except AccessDenied:
            return False
        return True

    def require_replay(self, caller: Caller, queue: str) -> None:
        """Refuse who may not replay items of this queue.

        Raises:
            AccessDenied: neither a rule nor the role allows it.
        """
        try:
            self._require(caller, "replay", queue)
        except AccessDenied as denied:
            self._log.event(
                RouterEvent.MANAGEMENT_REFUSED, doing=f"replay {QUEUE}{queue}", by=caller.shown, why=str(denied)
            )
            raise

    def replayed(self, caller: Caller, queue: str, number: str) -> None:
        """An item was replayed: the log has who did it."""
        self._log.event(RouterEvent.MANAGEMENT_DONE, doing="replay", name=QUEUE + queue, given=number, by=caller.shown)

    def _require(self, caller: Caller, right: str, queue: str) -> None:
        config = self._config()
        rules = config.access_rules
        if not decide(rules, right):
            self._access.require(caller, ROLES_BY_RIGHT[right])
            return
        groups = groups_of(config.groups, caller.user)
        if caller.misnamed or allowing_rule(rules, right, caller.user, QUEUE + queue, groups) is None:
            raise AccessDenied(
                403, f"no rule of access.rules lets you {right} {QUEUE}{queue}", "ask an administrator of this router"
            )
