"""How often a process that serves looks for garbage. A program of its own: the collector is a process's."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, weakref
from bridges.doors.garbage import collect_seldom

class Knot:
    def __init__(self):
        self.itself = self

gc.unfreeze()
old = weakref.ref(Knot())
collect_seldom()
looks = []
gc.callbacks.append(lambda phase, about: looks.append(phase))
messages = [[number] for number in range(5_000)]
few = len(looks)
young = [weakref.ref(Knot()) for number in range(30_000)]
print(old() is None, gc.get_freeze_count() > 1_000, few, sum(each() is None for each in young) > 10_000)
"""


@pytest.mark.cold
def test_messages_under_way_are_not_looked_at_and_what_is_garbage_goes() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "0", "True"]
