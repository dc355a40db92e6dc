"""What a link that stays attached keeps of the attach that made it."""

from __future__ import annotations

import gc
from types import FunctionType, ModuleType

import pytest

from oncewire.wire import Attach, LinkAttached, Source, Symbol, Target
from oncewire.wire.performatives import UnsettledMap
from router.clients.link_refusal import lighten
from tests.support.engines import RawPeer, one

TAGS = 200


def referents(of: object) -> list[object]:
    """What it keeps alive; a function not its module, which has all others."""
    return [of.__closure__, of.__defaults__] if type(of) is FunctionType else gc.get_referents(of)


def tags_within_reach(of: object) -> int:
    """How many of the tags below somebody keeps alive."""
    reached, seen = [of], {id(of)}
    for each in reached:
        for next_one in referents(each):
            if id(next_one) not in seen and not issubclass(type(next_one), (type, ModuleType)):  # also weak proxies
                seen.add(id(next_one))
                reached.append(next_one)
    return sum(type(each) is bytes and each.startswith(b"left-behind-") for each in reached)


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_attach_that_was_answered_keeps_no_tag_of_its_map(is_refused: bool) -> None:
    unsettled: UnsettledMap = {b"left-behind-%d" % number: None for number in range(TAGS)}
    peer = RawPeer()
    peer.begin()
    attach = Attach("mute", 0, True, source=Source(address="orders"), target=Target(address="me"), unsettled=unsettled)
    attach.properties = {Symbol("x-note"): b"left-behind-note"}
    peer.send(attach)
    link = one(peer.heard, LinkAttached).link
    assert tags_within_reach(link) == TAGS + 1
    link.context = None if is_refused else "a shell"
    lighten(link)
    assert tags_within_reach(link) == 0
