"""What an ended connection leaves is freed at once: the garbage collector would stop all others meanwhile."""

from __future__ import annotations

import gc
import sys

from oncewire.wire import ReceiverLink
from tests.support.engines import Pipe

LINKS = 20


def links_alive() -> int:
    """Receiving links that anybody has, whether in circles or not."""
    return sum(type(each) is ReceiverLink for each in gc.get_objects())


def test_what_a_lost_connection_leaves_is_gone_without_the_collector() -> None:
    pipe, context = Pipe(), ["of a shell"]
    server, others, before = pipe.server, links_alive(), sys.getrefcount(context)
    for number in range(LINKS):
        pipe.link_to_server(f"link{number}")[1].context = context
    assert links_alive() == others + LINKS
    gc.disable()
    try:
        server.receive_eof(pipe.now)
        server.events()
        server.let_go()
        assert links_alive() == others
    finally:
        gc.enable()
    assert sys.getrefcount(context) == before
    assert not server.sessions


def test_what_had_come_in_part_is_let_go_with_its_connection() -> None:
    pipe = Pipe()
    pipe.link_to_server()
    part = (1 << 15).to_bytes(4, "big") + b"\x02\x00\x00\x00" + bytes(1 << 14)
    pipe.server.receive_data(part, pipe.now)
    assert pipe.server.buffered == len(part)
    pipe.server.receive_eof(pipe.now)
    pipe.server.let_go()
    assert not pipe.server.buffered
