"""What waits in the outbox is seen: in numbers, and on the command line (W-27)."""

from __future__ import annotations

import json

from bridges.store.outbox_publisher import NAME
from bridges.store.statements import END_ROW
from bridges.workqueue import new_message
from bridges.workqueue.cli import queue as group
from bridges.workqueue.unpublished import outbox_numbers
from oncewire.client.outcomes import rejected
from oncewire.client.sqlite_journal import outcome_to_text
from oncewire.store.owners import take_over
from tests.store.shell import Shell
from tests.workqueue.queue_world import World


def test_what_waits_in_the_outbox_is_in_the_numbers_and_on_the_command_line(sql_world: World) -> None:
    sql_world.configure("work")
    for topic in ("a", "b", "a"):
        sql_world.do(lambda do: do.publish([new_message(topic, b"x")]))  # noqa: B023
        sql_world.clock.now += 10
    no = outcome_to_text(rejected("no", "such thing"))
    sql_world.do(lambda do: do.execute(END_ROW, (no, "b", 0)))
    first, second = sql_world.do(outbox_numbers)
    assert (first.topic, first.unsent, first.oldest_s, first.unpublished) == ("a", 2, 30.0, 0)
    assert (second.topic, second.unsent, second.oldest_s, second.unpublished) == ("b", 0, None, 1)
    assert not first.has_publisher
    shell = Shell(group, sql_world.database.url)
    (numbers,) = shell.json("stats")
    topics = [(each["topic"], each["unsent"]) for each in numbers if "topic" in each]
    assert topics == [("a", 2), ("b", 0)]
    ended, waits = shell.run("unpublished", "--json").splitlines()
    assert json.loads(ended)["topic"] == "b"
    assert waits.startswith("2 messages for a wait to be published, the first one for")
    assert "no process publishes" in waits
    sql_world.do(lambda do: take_over(do, NAME))
    assert all(each.has_publisher for each in sql_world.do(outbox_numbers))
