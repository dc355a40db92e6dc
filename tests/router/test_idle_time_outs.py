"""The idle time-outs that are shipped, of our client and of a router toward clients, in virtual time."""

from __future__ import annotations

import pytest

from oncewire.client.defaults import IDLE_TIME_OUT_S
from oncewire.wire import Connection, ConnectionClosed, ConnectionLost, Event, Role
from router.settings.of_clients import IDLE_TIMEOUT_S

STOPPED_S = 3.0
"""A client whose router is stopped notices it by then."""


class Line:
    """A client and a router that say nothing but what AMQP 2.4.5 asks for; either direction may be cut."""

    def __init__(self) -> None:
        self.now = 0.0
        self.client = Connection(Role.CLIENT, container_id="c", idle_time_out_ms=round(IDLE_TIME_OUT_S * 1000), now=0.0)
        self.router = Connection(Role.SERVER, container_id="r", idle_time_out_ms=round(IDLE_TIMEOUT_S * 1000), now=0.0)
        self.carries_to_router = True
        self.carries_to_client = True
        self.is_router_stopped = False
        self.heartbeats = 0
        self.at_client: list[tuple[float, Event]] = []
        self.client.open()
        self._carry()

    def _carry(self) -> None:
        for _ in range(4):
            data = self.client.data_to_send()
            if data and self.carries_to_router and not self.is_router_stopped:
                self.router.receive_data(data, self.now)
            list(self.router.events())
            data = b"" if self.is_router_stopped else self.router.data_to_send()
            if data and self.carries_to_client:
                self.client.receive_data(data, self.now)
                self.heartbeats += 1
            self.at_client += [(self.now, event) for event in self.client.events()]

    def run(self, seconds: float) -> None:
        """Let time pass from deadline to deadline."""
        ends_at = self.now + seconds
        while True:
            awake = [self.client] if self.is_router_stopped else [self.client, self.router]
            deadlines = [at for engine in awake if (at := engine.next_deadline()) is not None]
            if not deadlines or min(deadlines) > ends_at:
                break
            self.now = max(self.now, min(deadlines))
            for engine in awake:
                engine.handle_timer(self.now)
            self._carry()
        self.now = ends_at

    def noticed_after(self, fault: float) -> float:
        """From the fault to the moment in which the client knew that the connection has ended."""
        ends = [at for at, event in self.at_client if isinstance(event, ConnectionClosed | ConnectionLost)]
        assert ends, "the client never knew"
        return ends[0] - fault


def test_an_idle_client_and_its_router_keep_each_other_for_as_long_as_they_live() -> None:
    line = Line()
    line.run(600.0)
    assert not any(isinstance(event, ConnectionClosed | ConnectionLost) for _, event in line.at_client)
    # Two or three chances within a time-out, and no more than is paid for.
    assert 2 <= line.heartbeats / (600.0 / IDLE_TIME_OUT_S) <= 5


@pytest.mark.parametrize("phase", [0.0, 0.2, 0.4, 0.6])
def test_a_client_detects_a_stalled_router_within_three_seconds(phase: float) -> None:
    line = Line()
    line.run(20.0 + phase)
    line.is_router_stopped = True
    line.run(30.0)
    assert line.noticed_after(20.0 + phase) <= STOPPED_S


@pytest.mark.parametrize("phase", [0.0, 0.2, 0.4, 0.6])
def test_a_client_that_receives_nothing_from_its_router_detects_it_within_three_seconds(phase: float) -> None:
    line = Line()
    line.run(20.0 + phase)
    line.carries_to_client = False
    line.run(30.0)
    assert line.noticed_after(20.0 + phase) <= STOPPED_S


def test_a_client_whose_frames_are_lost_is_disconnected_within_the_idle_time_out_of_the_router() -> None:
    line = Line()
    line.run(20.0)
    line.carries_to_router = False
    line.run(30.0)
    assert line.noticed_after(20.0) <= IDLE_TIMEOUT_S
