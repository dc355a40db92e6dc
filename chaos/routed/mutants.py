"""The rules, each taken out once: a run of some seed must notice."""

from __future__ import annotations

from chaos.routed.code import Edit

EDITS = (
    Edit("a-service-that-left-is-offered", "R-1", "if self._services.pop(carrier, None) is not None:", "if False:"),
    Edit("attaches-circle", "R-3", "return way.hops < MAX_HOPS", "return True"),
    Edit(
        "the-client-is-answered-early",
        "R-3",
        "        self.links[routed] = None\n",
        ("        self.links[routed] = None\n        routed.do(routed.core.on_answer(terms_of(link.remote_attach)))\n"),
    ),
    Edit("the-map-is-dropped", "R-3", '"unsettled": terms.unsettled,', '"unsettled": {} if terms.unsettled else None,'),
    Edit(
        "the-reply-map-is-dropped", "R-3", "            unsettled=terms.unsettled,\n", "            unsettled=None,\n"
    ),
    Edit(
        "clients-are-believed",
        "R-4",
        "properties[vocabulary.ROUTER_CONTAINER] = origin.container_id",
        (
            "properties = {**properties, vocabulary.ROUTER_CONTAINER: (terms.properties or "
            "{}).get(vocabulary.ROUTER_CONTAINER, origin.container_id)}"
        ),
    ),
    Edit(
        "names-of-links-collide",
        "R-4",
        "whole = f\"{found.get(vocabulary.ROUTER_CONTAINER, '')}|{found.get(vocabulary.ROUTER_LINK, name)}\"",
        'whole = f"another|{found.get(vocabulary.ROUTER_LINK, name)}"',
    ),
    Edit(
        "credit-of-our-own",
        "R-5",
        "credit = max(0, effect.limit - source.moved)",
        "credit = max(0, effect.limit - source.moved) + 3",
    ),
    Edit("credit-is-not-looked-at", "R-5", "if self._sent + count > self._limit:", "if False:"),
    Edit("late-ones-overtake", "R-5", "self._waiting.append(delivery)", "self._waiting.appendleft(delivery)"),
    Edit("returned-credit-is-kept", "R-5", "if flow.skipped:", "if False:"),
    Edit(
        "outcomes-without-settlement-are-lost",
        "R-6",
        "return [Dispose(ids, event.state, event.settled)] if ids else []",
        "return [Dispose(ids, event.state, True)] if ids and event.settled else []",
    ),
    Edit("settlements-are-lost", "R-6", "return [Settle(ids, event.state)] if ids else []", "return []"),
    Edit(
        "a-router-accepts",
        "R-6",
        "                effects.append(Send(head))",
        (
            "                from oncewire.wire import ACCEPTED\n\n"
            "                effects += [Send(head), Dispose([head.delivery_id], ACCEPTED, False)]"
        ),
    ),
    Edit(
        "a-lost-half-is-not-told",
        "R-7",
        "return self._leave(side.other, AmqpError(DETACH_FORCED, why)) + self._finish()",
        "return self._finish()",
    ),
    Edit(
        "a-detach-stays-here",
        "R-7",
        "            effects.append(Detach(other, event.closed, event.error))",
        "            pass",
    ),
    Edit(
        "credit-of-an-earlier-flow",
        "R-5",
        "relay.on_receiver_flow(event, link.credit_limit)",
        "relay.on_receiver_flow(event, event.credit_limit)",
    ),
    Edit("windows-stay-open", "R-8", "wanted = 0 if self.is_stopped else frames", "wanted = frames"),
    Edit(
        "room-is-not-looked-at",
        "R-9",
        "return not (self.carrier.is_behind or self.link.session.is_queueing)",
        "return False",
    ),
    Edit(
        "a-push-is-accepted-unread",
        "W-17",
        "        self._waiting.append(ToPush(number, event.tag, item))",
        (
            "        self._waiting.append(ToPush(number, event.tag, item))\n"
            "        return [*self._push(), Dispose([event.delivery_id], ACCEPTED, False)]"
        ),
    ),
    Edit("deliveries-are-not-kept", "W-17", "self._deliveries[link, tag] = pushed.item", "pass"),
    Edit(
        "settled-tags-are-kept-and-unsettled-forgotten",
        "W-17",
        "return LinkState(generation, kept & set(tags), kept - set(tags))",
        "return LinkState(generation, kept - set(tags), kept & set(tags))",
    ),
    Edit(
        "tags-are-forgotten-at-the-attach",
        "W-17",
        "        return LinkState(generation, kept & set(tags), kept - set(tags))",
        (
            "        for tag in kept - set(tags):\n"
            "            del self._deliveries[link, tag]\n"
            "        return LinkState(generation, kept & set(tags))"
        ),
    ),
    Edit("two-workers-hold-an-item", "W-4", "row.is_reserved and row.until > self.now", "False"),
    Edit("a-reservation-keeps-its-number", "W-4", "row.reservation += 1", "row.reservation = 1"),
    Edit(
        "a-worker-is-answered-early",
        "W-5",
        "        return [Settle(outcomes)] if outcomes else []",
        "        return [*[Answer(each.number, each.state) for each in outcomes], Settle(outcomes)]",
    ),
)
