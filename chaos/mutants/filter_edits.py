"""Edits of filters (rule E-9)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

_WITH_MAPS = ("stock_publisher=0", "presettled_publisher=0", "settled_subscriber=0")

FILTER_EDITS: tuple[Edit, ...] = (
    Edit(
        "excluded-is-an-entry",
        "E-9",
        "            sync.acknowledge(number, DeliveryOutcome.ACCEPTED)\n",
        "            sync.acknowledge(number, DeliveryOutcome.ACCEPTED)\n"
        "            names = Egress.on_msg.__globals__\n"
        "            whole = names['network_tag'](self._turn.nonce, sync.session, tag)\n"
        "            entry = names['Entry'](whole, names['State'].SKIPPED)\n"
        "            entry.outcome, entry.sync, entry.number = DeliveryOutcome.ACCEPTED, sync, number\n"
        "            sync.numbers[number] = sync.entries[entry.tag] = entry\n",
        "an excluded delivery behind held ones makes the next SYNC take those for skipped: they are lost",
        where="FilteredEgress._leave_out",
        aim=("drop-p", "filters=1", "prefetch=1", "messages=8", "window=8", *_WITH_MAPS, "stock_subscriber=0"),
    ),
    Edit(
        "excluded-is-not-acknowledged",
        "E-9",
        "        if self.mode is not SubscriptionMode.AT_MOST_ONCE:  # c.3: no ACK, for nothing is owed\n",
        "        if False:\n",
        "a publisher waits for ever for a subscription that is never sent its message",
        aim=("drop-p", "filters=1", *_WITH_MAPS),
    ),
    Edit(
        "filtered-when-sent",
        "E-9",
        "        if sync is not None and number not in sync.numbers and self._excludes(publisher_epoch, message,"
        " message_format):\n",
        "        has_credit = self.outgoing.sent < self.outgoing.limit\n"
        "        if sync is not None and has_credit and number not in sync.numbers and self._excludes(\n"
        "            publisher_epoch, message, message_format\n"
        "        ):\n",
        "what a filter excludes waits for the credit of a subscriber that has nothing to give credit for",
        aim=("drop-s", "filters=5", *_WITH_MAPS, "shipped=0", "stock_subscriber=0"),
    ),
    Edit(
        "a-new-filter-keeps-the-subscription",
        "E-9",
        "        if record is not None and (record.topic != topic or record.filter != filter_text"
        " or record.member_of):\n",
        "        if record is not None and (record.topic != topic or record.member_of):\n",
        "what the former filter excluded, and was owed to nobody, lies before what the new one gets, or what it was"
        " owed is excluded by the new one",
        aim=("refilter-s", "drop-p", "filters=1", "messages=8", "window=8", *_WITH_MAPS),
    ),
    Edit(
        "a-filter-is-forgotten-by-a-new-owner",
        "E-9",
        "(topic, filter_text), terms, provisional",
        '(topic, "" if record else filter_text), terms, provisional',
        "a subscriber that attaches again gets what its filter excludes",
        aim=("drop-s", "filters=1", "messages=8"),
    ),
    Edit(
        "own-messages-by-the-former-epoch",
        "E-9",
        "        super().on_sync(publisher_key, ingress_rid, session, sync)\n"
        "        if self._filter is not None and self._filter.compiled.no_local:\n",
        "        is_first = publisher_key not in self.sync_of_publisher\n"
        "        super().on_sync(publisher_key, ingress_rid, session, sync)\n"
        "        if self._filter is not None and self._filter.compiled.no_local and is_first:\n",
        "a subscriber gets what its own container publishes, once the publisher has attached again",
        aim=("drop-p", "filters=5", "messages=8", "publishers=1"),
    ),
)
