"""What clients send to a journal's address, each delivery once (J-18)."""

from __future__ import annotations

from typing import Any

import pytest

from bridges.journal.address import JournalTarget
from bridges.journal.errors import JournalFull, UnknownJournal
from bridges.journal.model import NewMessage
from bridges.store import links
from bridges.store.push_core import ToPush
from oncewire.store.errors import LimitReached, LinkStolen
from tests.journal.journal_world import NAME, JournalWorld

KEY = "link"


def items(*tags: bytes) -> list[ToPush]:
    return [ToPush(number, tag, NewMessage(b"message " + tag)) for number, tag in enumerate(tags)]


def push(world: JournalWorld, generation: int, *tags: bytes, link: str | None = KEY) -> list[Any]:
    return world.do(lambda do: JournalTarget(NAME).push(do, items(*tags), link, generation))


def resume(world: JournalWorld, *tags: bytes) -> links.LinkState:
    return world.do(lambda do: links.resume_link(do, KEY, list(tags)))


def test_a_direct_sender_appends_once_whatever_it_sends_again(world: JournalWorld) -> None:
    world.make()
    first = resume(world)
    assert push(world, first.generation, b"a", b"b") == [1, 2]
    assert push(world, first.generation, b"b", b"c") == [2, 3]
    second = resume(world, b"b", b"c", b"d")
    assert second.known == {b"b", b"c"}
    assert push(world, second.generation, b"d") == [4]
    assert [each.payload[-1:] for each in world.read()] == [b"a", b"b", b"c", b"d"]


def test_an_earlier_attach_of_a_link_appends_nothing(world: JournalWorld) -> None:
    world.make()
    first = resume(world).generation
    resume(world)
    with pytest.raises(LinkStolen):
        push(world, first, b"a")
    assert world.positions() == []


def test_senders_make_so_many_links_and_unused_ones_go(world: JournalWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MAX_LINKS", 2)
    for name in ("a", "b", "a"):
        world.do(lambda do, name=name: links.resume_link(do, name, []))  # type: ignore[misc]
    with pytest.raises(LimitReached, match="2 names within a day"):
        world.do(lambda do: links.resume_link(do, "c", []))
    assert world.do(lambda do: links.resume_link(do, "b", [])).generation == 2
    world.clock.now += links.LINK_EXPIRY_S + 1
    assert world.do(lambda do: links.resume_link(do, "c", [])).generation == 1


def test_a_settled_delivery_is_forgotten_and_its_tag_is_free(world: JournalWorld) -> None:
    world.make()
    generation = resume(world).generation
    push(world, generation, b"a")
    world.do(lambda do: links.settle_deliveries(do, KEY, generation, [b"a"]))
    assert push(world, generation, b"a") == [2]


def test_a_sender_that_settles_first_is_known_by_nothing(world: JournalWorld) -> None:
    world.make()
    assert push(world, 0, b"a", link=None) == [1]
    assert push(world, 0, b"a", link=None) == [2]
    assert resume(world, b"a").known == frozenset()


def test_what_a_full_journal_refuses_leaves_no_tag(world: JournalWorld) -> None:
    world.make(max_bytes=60)
    generation = resume(world).generation
    with pytest.raises(JournalFull):
        push(world, generation, b"a", b"b")
    assert resume(world, b"a", b"b").known == frozenset()


def test_a_sender_to_a_journal_that_is_not_there_is_refused(world: JournalWorld) -> None:
    with pytest.raises(UnknownJournal):
        world.do(JournalTarget("nothing").check)


class Counted:
    """A transaction that counts what its job asks the database for."""

    def __init__(self, do: Any) -> None:
        self._do = do
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += name in {"execute", "write", "write_many"}
        return getattr(self._do, name)


@pytest.mark.parametrize("again", [False, True], ids=["new", "sent again"])
def test_many_deliveries_cost_no_more_statements_than_one(world: JournalWorld, again: bool) -> None:
    world.make()
    generation = resume(world).generation

    def cost(*tags: bytes) -> int:
        def job(do: Any) -> int:
            counted = Counted(do)
            JournalTarget(NAME).push(counted, items(*tags), KEY, generation)
            links.settle_deliveries(counted, KEY, generation, tags if again else ())
            return counted.calls

        if again:
            push(world, generation, *tags)
        return world.do(job)

    assert cost(*(b"%d" % number for number in range(100))) == cost(b"one")
