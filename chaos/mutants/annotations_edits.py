"""Edits of what *modified* adds to messages, and of what counts as a failure of members (rules E-4b and SH-5)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_PLAIN = (
    "refuses=1",
    "shipped=0",
    "messages=20",
    "stock_publisher=0",
    "presettled_publisher=0",
    "settled_subscriber=0",
)
_SHARED = ("sharers=2", "subscribers=2", "groups=0", *_PLAIN)
_MEMBERS = ("stock_subscriber=0", *_SHARED)

ANNOTATIONS_EDITS: tuple[Edit, ...] = (
    Edit(
        "the-next-modified-replaces-all",
        "E-4b",
        "    found = {**known, **added} if known else added\n",
        "    found = added\n",
        "what a subscriber has added to a message is gone when it adds something else",
        aim=_PLAIN,
    ),
    Edit(
        "annotations-of-one-attempt",
        "E-4b",
        "                    entry.annotations, entry.message_format,\n                )\n            )\n",
        "                    entry.annotations, entry.message_format,\n                )\n            )\n"
        "        entry.annotations = None\n",
        "what a subscriber has added to a message is gone when it releases the next attempt",
        where="Outgoing._transfer",
        aim=_PLAIN,
    ),
    Edit(
        "annotations-stay-at-the-egress",
        "E-4b",
        "            self._fanout.annotated.add(key, number, added)\n",
        "            pass\n",
        "a subscriber that attaches again, or another member, is sent a message without what was added to it",
        aim=("drop-s", *_PLAIN),
    ),
    Edit(
        "other-members-get-no-annotations",
        "E-4b",
        "        if self.annotated.added:\n            self.state_annotations(slot.number, found)\n",
        "",
        "a member is sent a message without what the one has added that had it before",
        aim=_MEMBERS,
    ),
    Edit(
        "handed-back-is-flagged",
        "SH-5",
        "        self._way.stop_sending(number, member.key)  # its egress drops what is on the way (SH-5)\n",
        "        self._way.stop_sending(number, member.key)  # its egress drops what is on the way (SH-5)\n"
        "        self._again.add(number)\n",
        "what a member releases is counted as an attempt at the next one",
        where="Share._give_up",
        aim=_MEMBERS,
    ),
    Edit(
        "a-former-return-is-not-heard",
        "SH-5",
        "            if number not in member.claimed:\n                self.on_handed_back(key, number)\n",
        "",
        "what a member's egress returned as its key was put again comes to it flagged, for the first time",
        aim=("stock_subscriber=1", "prefetch=1", *_SHARED),
    ),
    Edit(
        "a-former-refusal-is-not-heard",
        "SH-5",
        "                share.on_handed_back(subscription.key, number)\n",
        "                pass\n",
        "what a member released as its key was put again is counted as an attempt at the next one",
        aim=("stock_subscriber=1", "prefetch=1", *_SHARED),
    ),
    Edit(
        "failed-for-good-is-not-counted",
        "SH-5",
        "        entry.failed += 1\n        return self._look_at_limit(subscription, slot, entry)\n",
        "        return self._look_at_limit(subscription, slot, entry)\n",
        "a member fails a message and does not want it any more, and the next one is not told of an attempt",
        aim=_MEMBERS,
    ),
)
