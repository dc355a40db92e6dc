"""The driver of the record core: effects are carried out, deadlines met, and a fault ends the incarnation."""

from __future__ import annotations

from typing import Any

from delivery_records import Records
from delivery_records.model import effects
from delivery_records.model.inputs import PublisherAttach, RouterDatagram, StoreHealth, ViewSnapshot
from delivery_records.model.messages import Hello
from delivery_records.model.view import Change, Kind, RouterRecord, router_key
from oncewire.transport.turn import Backlog, Turn
from router.process.logs import EventLog, Part
from router.records_driver import RecordsDriver
from tests.router.raw_client import until


class Driven:
    """A driver with a fresh core, and what its parts got."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.log = EventLog("r1")
        self.sent: list[effects.SendDatagram] = []
        self.driver = RecordsDriver(
            Records(rid=1, node_id="r1", nonce=b"abcd"),
            self.log,
            lambda _now: True,
            lambda: self.faults.append("fault"),
            Backlog(Turn()),
        )
        self.driver.register(effects.SendDatagram, self.sent.append)


class LinkShell:
    """Records what it should do."""

    def __init__(self) -> None:
        self.reported: list[Any] = []
        self.fault: Exception | None = None
        self.is_failed = False

    def carry_out(self, effect: Any) -> None:
        self.reported.append(effect)
        if self.fault is not None:
            raise self.fault

    def fail(self) -> None:
        self.is_failed = True


def router_change(rid: int) -> Change:
    record = RouterRecord(node_id=f"r{rid}", rid=rid)
    return Change(Kind.ROUTER, router_key(record), record, rid, rid)


async def test_an_effect_that_names_a_link_reaches_its_shell() -> None:
    driven = Driven()
    shell = LinkShell()
    number = driven.driver.add_link(shell)
    driven.driver.submit([PublisherAttach(number, "box", "till", "orders", None)])
    (refused,) = shell.reported
    assert isinstance(refused, effects.DetachLink)  # there is no store yet; other links live on


async def test_a_fault_of_the_core_ends_the_incarnation_and_reaches_nobody_else() -> None:
    driven = Driven()
    driven.driver.submit([object()])  # type: ignore[list-item]  # a fault of ours
    assert driven.faults == ["fault"]


async def test_an_effect_that_cannot_be_carried_out_ends_its_connection_and_the_others_follow() -> None:
    driven = Driven()
    shells = [LinkShell(), LinkShell()]
    first, second = (driven.driver.add_link(shell) for shell in shells)
    shells[0].fault = ValueError("a fault of ours")
    attaches = [PublisherAttach(number, f"box{number}", "till", "orders", None) for number in (first, second)]
    driven.driver.submit([*attaches])
    assert [shell.is_failed for shell in shells] == [True, False]
    assert len(shells[1].reported) == 1
    assert driven.faults == []  # K-3b: the incarnation goes on
    assert driven.log.faults[Part.EFFECT] == 1


async def test_a_frame_that_cannot_be_encoded_does_not_end_the_incarnation() -> None:
    driven = Driven()

    def fail(_effect: effects.SendDatagram) -> None:
        raise OverflowError

    driven.driver.register(effects.SendDatagram, fail)
    driven.driver.submit([StoreHealth(available=True), ViewSnapshot(5, [router_change(1), router_change(2)])])
    driven.driver.submit([RouterDatagram(2, Hello(3, True, 0, 0, 5))])
    assert driven.log.faults[Part.EFFECT] > 0
    assert driven.faults == []
    driven.driver.stop()


async def test_a_stopped_driver_handles_nothing_any_more() -> None:
    driven = Driven()
    shell = LinkShell()
    number = driven.driver.add_link(shell)
    driven.driver.stop()
    driven.driver.submit([PublisherAttach(number, "box", "till", "orders", None)])
    assert shell.reported == []


async def test_deadlines_of_the_core_are_met_without_input() -> None:
    driven = Driven()
    snapshot = ViewSnapshot(5, [router_change(1), router_change(2)])
    driven.driver.submit([StoreHealth(available=True), snapshot])
    driven.driver.submit([RouterDatagram(2, Hello(3, True, 0, 0, 5))])
    # Router 2 speaks of a generation we have not opened: HELLO is repeated until it answers.
    before = len(driven.sent)
    assert before > 0

    async def repeats() -> int:
        return len(driven.sent) - before

    await until(repeats, lambda found: found >= 2)
    driven.driver.stop()
