"""Which router a client tries next: after a redirect the named one, at once; advertised ones take turns (K-8a)."""

from __future__ import annotations

from collections.abc import Callable

from oncewire.client.failover import BACK_OFF_CAP_S, MAX_ADDRESSES, REDIRECTS_AT_ONCE, Address, Failover


def longest(_low: float, high: float) -> float:
    return high


def made(*urls: str, uniform: Callable[[float, float], float] = longest) -> Failover:
    return Failover(urls, uniform)


def router(name: str, port: int = 5672) -> Address:
    return Address(name, port)


def test_a_redirect_is_followed_without_a_pause_and_a_loss_is_not() -> None:
    failover = made("amqp://a", "amqp://b")
    assert failover.next_try(first=True) == (router("a"), 0.0)
    failover.prefer(router("c"))
    failover.failed(router("a"), "redirected")
    assert failover.next_try() == (router("c"), 0.0)
    failover.failed(router("c"), "refused")
    address, wait = failover.next_try()
    assert address != router("c")
    assert wait > 0


def test_routers_that_send_a_client_in_circles_do_not_make_it_spin() -> None:
    failover = made("amqp://a", "amqp://b")
    waits = []
    for turn in range(REDIRECTS_AT_ONCE + 2):
        failover.prefer(router("ab"[turn % 2]))
        failover.failed(router("x"), "redirected")
        waits.append(failover.next_try()[1])
    assert waits[:REDIRECTS_AT_ONCE] == [0.0] * REDIRECTS_AT_ONCE
    assert all(0 < wait <= BACK_OFF_CAP_S for wait in waits[REDIRECTS_AT_ONCE:])
    failover.succeeded()
    failover.prefer(router("b"))
    assert failover.next_try() == (router("b"), 0.0)


def test_a_fresh_list_takes_the_place_of_the_one_before_and_never_of_what_was_given() -> None:
    failover = made("amqp://given")
    failover.learn([router("old"), router("given"), router("older")])
    assert [*failover.addresses] == [router("given"), router("old"), router("older")]
    failover.learn([router("new")])
    assert [*failover.addresses] == [router("given"), router("new")]


def test_the_next_one_to_try_stays_so_when_a_list_comes() -> None:
    failover = made("amqp://a", "amqp://b")
    failover.next_try(first=True)
    failover.learn([router("c")])
    assert failover.next_try()[0] == router("b")
    failover.learn([router("d")])  # c, which was next, is gone: what was learnt last comes next
    assert [failover.next_try()[0] for _ in range(3)] == [router("d"), router("a"), router("b")]


def test_a_redirect_has_room_in_a_full_list() -> None:
    failover = made("amqp://given")
    failover.learn(router("advertised", port) for port in range(1, 2 * MAX_ADDRESSES))
    assert len(failover.addresses) == MAX_ADDRESSES
    failover.prefer(router("named"))
    assert len(failover.addresses) == MAX_ADDRESSES
    assert failover.next_try() == (router("named"), 0.0)
