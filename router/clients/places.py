"""The record core's numbers of a connection and its AMQP sessions: their ends are reported by number (A-9)."""

from __future__ import annotations

from delivery_records.model.inputs import EndpointEnded, Input, LinkPlace
from oncewire.wire import SessionEndpoint
from router.records_driver import RecordsDriver


class Places:
    """Numbers of one connection and of those of its sessions that links were attached in."""

    __slots__ = ("_number", "_sessions")

    def __init__(self) -> None:
        """No link was attached yet."""
        self._sessions: dict[SessionEndpoint, int] = {}
        self._number = 0
        """Of the connection; 0 = none."""

    def place_of(self, session: SessionEndpoint, driver: RecordsDriver) -> LinkPlace:
        """Where a link of this session is attached."""
        if not self._number:
            self._number = driver.new_number()
        if session not in self._sessions:
            self._sessions[session] = driver.new_number()
        return LinkPlace(self._sessions[session], self._number)

    def end_session(self, session: SessionEndpoint) -> list[Input]:
        """A session has ended."""
        number = self._sessions.pop(session, None)
        return [] if number is None else [EndpointEnded(number)]

    def end_connection(self) -> list[Input]:
        """The connection has ended, and all its sessions."""
        ended: list[Input] = [EndpointEnded(number) for number in self._sessions.values()]
        if self._number:
            ended.append(EndpointEnded(self._number))
        self.forget()
        return ended

    def forget(self) -> None:
        """The incarnation that gave the numbers is over."""
        self._sessions.clear()
        self._number = 0
