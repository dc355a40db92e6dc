"""Edits of the subscriber that drops copies (rule D-3)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_WORLD = (
    "drop-p",
    "crash",
    "shipped=1",
    "stock_publisher=1",
    "remembers=1000",
    "messages=8",
    "window=8",
    "presettled_publisher=0",
    "stock_subscriber=0",
    "settled_subscriber=0",
)
_SLOW = (*_WORLD, "lingers=1", "prefetch=8")

COPIES_EDITS: tuple[Edit, ...] = (
    Edit(
        "copies-of-done-are-handed-over",
        "D-3",
        "        is_rejected = self._done.get(identity.user, {}).get(identity.digest)\n",
        "        is_rejected = None\n",
        "what a stock publisher sends again is processed again",
        aim=_WORLD,
    ),
    Edit(
        "copies-do-not-wait",
        "D-3",
        "        if is_rejected is None and identity not in self._waiting:\n",
        "        if is_rejected is None and identity in self._waiting:\n"
        "            return\n"
        "        if is_rejected is None:\n",
        "a copy that comes while the application has the first one is processed beside it",
        aim=_SLOW,
    ),
    Edit(
        "what-arrived-counts-as-done",
        "D-3",
        "        if is_rejected is None:\n            self._waiting[identity].append(handed.serial)\n        else:\n",
        "        if True:\n",
        "a copy is accepted before the first one is done, and the process fails with it: nobody processes the message",
        aim=(*_SLOW, "crash-s", "durable=1"),
    ),
    Edit(
        "waiting-copies-are-forgotten",
        "D-3",
        "        for copy in self._waiting.pop(identity):\n",
        "        self._waiting.pop(identity)\n        for copy in ():\n",
        "a copy that waited is never answered, and its publisher waits for ever",
        aim=_SLOW,
    ),
    Edit(
        "ids-of-all-users-are-one",
        "D-3",
        "        identity = self._identify(handed.payload, handed.message_format)\n",
        "        identity = self._identify(handed.payload, handed.message_format)\n"
        '        identity = identity and type(identity)("", identity.digest)\n',
        "a publisher's message is dropped because another user has used its id",
        aim=(*_WORLD, "publishers=2", "subscribers=1"),
    ),
    Edit(
        "ids-are-kept-in-memory-only",
        "D-3",
        "            changes = replace(changes, done_ids=kept, forgotten_ids=tuple(self._old_ids))\n",
        "",
        "a process that comes back with its journal does not know what it has done",
        aim=(*_WORLD, "crash-s", "durable=1"),
    ),
    Edit(
        "ids-are-written-later",
        "D-3",
        "            self._new_ids = []\n",
        "            self._new_ids = self._new_ids[-1:]\n"
        "            changes = replace(changes, done_ids=changes.done_ids[:-1])\n",
        "a process that fails behind the commit has processed a message and does not know its id",
        aim=(*_WORLD, "crash-s", "torn-s", "durable=1"),
    ),
    Edit(
        "the-newest-id-is-forgotten",
        "D-3",
        "            self._forget_id(identity.user, next(iter(ids)))\n",
        "            self._forget_id(identity.user, next(reversed(ids)))\n",
        "past the bound a copy of what was done last is processed again",
        aim=(*_WORLD[:4], "remembers=4", *_WORLD[5:]),
    ),
)
