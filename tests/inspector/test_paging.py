"""Pages by cursor: every row once, whatever comes or goes between two pages."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.inspector.paging_core import encode_cursor, page_of
from topology.inspector.rows_core import Filter, Head, InputError

ALL = Filter()
Names = st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9)), unique=True, max_size=40)


def heads_of(names: list[tuple[str, int]]) -> list[Head]:
    return sorted(Head(name, str(number), name) for name, number in names)


def walked(heads: list[Head], limit: int) -> list[Head]:
    found: list[Head] = []
    cursor = None
    while True:
        page = page_of(heads, ALL, cursor, limit)
        assert page.total == len(heads)
        assert len(page.heads) <= limit
        found += page.heads
        cursor = page.next
        if cursor is None:
            return found


@given(Names, st.integers(1, 7))
def test_the_pages_together_are_the_table(names: list[tuple[str, int]], limit: int) -> None:
    heads = heads_of(names)
    assert walked(heads, limit) == heads


@given(Names, Names, st.integers(1, 7))
def test_rows_that_stay_are_seen_once_whatever_comes_or_goes(
    before: list[tuple[str, int]], after: list[tuple[str, int]], limit: int
) -> None:
    first = page_of(heads_of(before), ALL, None, limit)
    rest: list[Head] = []
    cursor = first.next
    while cursor is not None:
        page = page_of(heads_of(after), ALL, cursor, limit)
        rest += page.heads
        cursor = page.next
    seen = [*first.heads, *rest]
    assert len(set(seen)) == len(seen)
    if first.next is not None:
        staying = set(heads_of(before)) & set(heads_of(after))
        assert staying - set(first.heads) <= set(rest)


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "zz",
        "%%",
        "null",
        "x" * 10_000,
        "[" * 3000,
        "ä",
        *(base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in (1, [], ["a"], ["a", 1], "a")),
    ],
)
def test_a_cursor_that_is_none_of_ours_is_refused(cursor: str) -> None:
    with pytest.raises(InputError) as refused:
        page_of([Head("a", "1", "a")], ALL, cursor, 1)
    assert "next" in refused.value.fix


def test_a_cursor_may_name_a_row_that_has_gone() -> None:
    heads = [Head(name, name, name) for name in "bd"]
    assert [head.key for head in page_of(heads, ALL, encode_cursor(Head("c", "c", "c")), 5).heads] == ["d"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(), "abc"),
        (Filter(topic="orders.eu"), "ab"),
        (Filter(topic="orders.*"), "ab"),
        (Filter(router="r1"), "a"),
        (Filter(router="7f"), "bc"),
        (Filter(text="SHOP"), "bc"),
        (Filter(text="shop", topic="bills"), "c"),
        (Filter(topic="nothing"), ""),
    ],
)
def test_rows_are_narrowed_by_topic_router_and_text(wanted: Filter, found: str) -> None:
    heads = [
        Head("a", "a", "till/1", "orders.eu", ("r1", "1a")),
        Head("b", "b", "Shop/2", "orders.#", ("r2", "7f")),
        Head("c", "c", "shop/3", "bills", ("r2", "7f")),
    ]
    page = page_of(heads, wanted, None, 10)
    assert "".join(head.key for head in page.heads) == found
    assert page.total == len(found)
