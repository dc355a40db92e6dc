"""Whom a router believes when another one states who asks (K-1b): each statement once, for one request."""

from __future__ import annotations

import json

import pytest

from delivery_records.model.view import RouterRecord
from router.operator.stated_callers import REMEMBERED, STATED_CALLER, StatedCallers, StatementRefused
from topology.etcd.store import Stored
from topology.keys.attachments import router_store_key
from topology.keys.router_secrets import RouterSecrets

TARGET = "/api/v1/waits?limit=5"


def linked(*rids: int) -> list[StatedCallers]:
    """Routers that know each other's secrets by etcd."""
    all_secrets = {rid: RouterSecrets() for rid in rids}
    records = [RouterRecord(f"r{rid}", rid) for rid in rids]
    stored = [Stored(router_store_key(r), all_secrets[r.rid].encode(r), 1, 1, 0) for r in records]
    routers = []
    for rid, known in all_secrets.items():
        known.load(stored)
        routers.append(StatedCallers())
        routers[-1].begin(rid, known)
    return routers


def test_a_statement_is_believed_once_by_whom_it_is_for_and_for_its_request_alone() -> None:
    asks, answers, third = linked(1, 2, 3)

    def stated(user: str = "ann") -> str:
        return asks.headers(user, 2, TARGET)[STATED_CALLER]

    def refused(given: str, router: StatedCallers = answers, method: str = "GET", target: str = TARGET) -> str:
        with pytest.raises(StatementRefused) as reported:
            router.user_in(given, method, target)
        return str(reported.value)

    first = stated()
    assert refused(first, third) == "its proof does not fit"
    assert refused(first, target="/api/v1/deliveries/00") == "its proof does not fit"
    assert refused(first, method="POST") == "it is no statement that routers make"
    assert refused(first.replace(b"ann".hex(), b"bob".hex())) == "its proof does not fit"
    assert answers.user_in(first, "GET", TARGET) == "ann"
    assert refused(first) == "it was used before"
    assert answers.user_in(stated("Ännchen\n"), "GET", TARGET) == "Ännchen\n"
    assert refused(stated().replace("1 ", "9 ", 1)).startswith("no router of this network")
    for made_up in ("", "[" * 8_000, "1 1", f"1 {'9' * 5_000} 00 {'0' * 64}", first.upper(), first + "\n"):
        assert refused(made_up) == "it is no statement that routers make"


def test_nobody_is_stated_and_no_statement_believed_without_an_incarnation_or_a_login() -> None:
    asks, answers = linked(1, 2)
    assert asks.headers("", 2, TARGET) == {}
    given = asks.headers("ann", 2, TARGET)[STATED_CALLER]
    answers.begin(0, None)
    with pytest.raises(StatementRefused):
        answers.user_in(given, "GET", TARGET)
    asks.begin(0, None)
    assert asks.headers("ann", 2, TARGET) == {}


def test_a_key_without_a_secret_vouches_for_nobody() -> None:
    """Such a router is a neighbour (K-1b), but anybody can write its number into a header."""
    secrets = RouterSecrets()
    record = RouterRecord("old", 7)
    secrets.load([Stored(router_store_key(record), json.dumps({"node_id": "old"}).encode(), 1, 1, 0)])
    router = StatedCallers()
    router.begin(1, secrets)
    assert secrets.knows(7)
    with pytest.raises(StatementRefused, match="no router of this network"):
        router.user_in(f"7 1 {b'ann'.hex()} {'0' * 64}", "GET", TARGET)


def test_numbers_may_overtake_each_other_and_few_are_remembered() -> None:
    asks, answers = linked(1, 2)
    headers = [asks.headers("ann", 2, TARGET)[STATED_CALLER] for _ in range(3 * REMEMBERED)]
    for given in reversed(headers[:8]):
        assert answers.user_in(given, "GET", TARGET) == "ann"
    for given in headers[8:]:
        assert answers.user_in(given, "GET", TARGET) == "ann"
    assert len(answers._heard[1].numbers) == REMEMBERED
    for given in headers:
        with pytest.raises(StatementRefused, match="used before"):
            answers.user_in(given, "GET", TARGET)
