"""Log events of an edge, with fields; `oncewire.cli.log_output` writes them, docs/reference/events.md is the table."""

from __future__ import annotations

import logging
from enum import Enum

LOGGER_NAME = "oncewire.edge"


class EdgeEvent(Enum):
    """What an edge has to say. Some names are those of a router's events with the same meaning."""

    EDGE_STARTED = "edge_started"
    EDGE_DRAINING = "edge_draining"
    EDGE_STOPPED = "edge_stopped"
    PART_STARTED = "part_started"
    PART_FAILED = "part_failed"
    PART_ENDED = "part_ended"
    PART_REMOVED = "part_removed"
    PART_OWNED = "part_owned"
    PART_STANDS_BY = "part_stands_by"
    PART_TROUBLED = "part_troubled"
    PART_WELL = "part_well"
    STORE_AWAITED = "store_awaited"
    STORE_BACK = "store_back"
    CONFIG_RELOADED = "config_reloaded"
    CONFIG_REFUSED = "config_refused"
    MANAGEMENT_DONE = "management_done"
    MANAGEMENT_REFUSED = "management_refused"
    INTERNAL_ERROR = "internal_error"


_LEVELS = {
    EdgeEvent.PART_FAILED: logging.WARNING,
    EdgeEvent.PART_ENDED: logging.WARNING,
    EdgeEvent.PART_TROUBLED: logging.WARNING,
    EdgeEvent.STORE_AWAITED: logging.WARNING,
    EdgeEvent.CONFIG_REFUSED: logging.WARNING,
    EdgeEvent.MANAGEMENT_REFUSED: logging.WARNING,
}


class EdgeLog:
    """Writes the events of one edge."""

    def __init__(self, name: str) -> None:
        self.logger = logging.getLogger(LOGGER_NAME)
        self._name = name

    def event(self, event: EdgeEvent, **fields: object) -> None:
        """Log one event."""
        extra = {"fields": {"edge": self._name, **fields}}
        self.logger.log(_LEVELS.get(event, logging.INFO), event.value, extra=extra)

    def fault(self, error: BaseException, **fields: object) -> None:
        """Log a fault of our own with its traceback."""
        extra = {"fields": {"edge": self._name, "error": str(error), **fields}}
        self.logger.error(EdgeEvent.INTERNAL_ERROR.value, extra=extra, exc_info=error)
