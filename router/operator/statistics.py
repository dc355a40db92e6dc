"""Gathers what is exported as a metric, when somebody scrapes; keeps the counts of lives that are over (K-3)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from delivery_records import Records
from delivery_records.diagnostics.figures import Totals
from delivery_records.model.durations import Durations
from delivery_records.model.topics import split_vhost
from oncewire.transport.gate import ListenerGate
from router.authentication.tls import RouterTls
from router.clients.listener import ClientListener
from router.incarnations.incarnation import Incarnation
from router.operator.status import Numbers, VhostNumbers
from router.operator.telemetry import Telemetry
from router.process.event_loop_lag import LoopWatch
from router.process.logs import EventLog
from router.settings.access_rules import DEFAULT_VHOST


class Accounts:
    """Counts over all lives of one router process."""

    def __init__(
        self,
        router: str,
        version: str,
        listener: ClientListener,
        watch: LoopWatch,
        log: EventLog,
        tls: RouterTls,
        gates: Iterable[ListenerGate] = (),
    ) -> None:
        """Nothing has happened yet."""
        self.incarnations = 0
        self.telemetry: Telemetry | None = None
        self._router = router
        self._version = version
        self._decisions: Counter[str] = Counter()
        self._durations = Durations()
        self._listener = listener
        self._watch = watch
        self._log = log
        self._tls = tls
        self._gates = gates

    def end(self, incarnation: Incarnation) -> None:
        """A life is over; what it counted stays."""
        self._decisions.update(_named(incarnation.records))
        self._durations.add(incarnation.records.durations)

    def numbers(self, incarnation: Incarnation | None, *, is_history_lost: bool = False) -> Numbers:
        """Everything that is exported, of this moment."""
        decisions = self._decisions.copy()
        durations = Durations()
        durations.add(self._durations)
        core = Totals()
        if incarnation is not None:
            decisions.update(_named(incarnation.records))
            durations.add(incarnation.records.durations)
            core = incarnation.records.figures.totals(time.monotonic())
        listener, watch = self._listener, self._watch
        return Numbers(
            router=self._router,
            version=self._version,
            decisions=decisions,
            durations=durations,
            core=core,
            events=dict(self._log.counts),
            faults={part.value: count for part, count in self._log.faults.items()},
            spans={} if self.telemetry is None else self.telemetry.counts(),
            incarnations=self.incarnations,
            connections=listener.connection_count,
            accepted_connections=listener.accepted,
            refused_links=listener.refused_links,
            refused_handshakes=self._tls.refused,
            attach_delays=listener.attach_rates.delayed,
            excess_closed=listener.excess.closed,
            opening={each.name: each.admission.count for each in self._gates},
            turned_away={each.name: each.admission.closed + each.admission.refused for each in self._gates},
            client_bytes_in=listener.bytes_in,
            client_bytes_out=listener.bytes_out,
            lease_left_s=0.0 if incarnation is None else incarnation.membership.lease_left(),
            lease_age_s=0.0 if incarnation is None else incarnation.membership.lease_age(),
            is_history_lost=is_history_lost,
            loop_lag_s=watch.lag_s,
            worst_loop_lag_s=watch.take_worst(),
            loop_stalls=watch.stalls,
            routers_unreachable=0 if incarnation is None else _unreachable(incarnation),
            neighbours=[] if incarnation is None else incarnation.neighbours.numbers(),
            vhosts=_of_vhosts(listener, None if incarnation is None else incarnation.records),
        )


def _of_vhosts(listener: ClientListener, records: Records | None) -> dict[str, VhostNumbers]:
    """What each virtual host has here, the default one, too; nothing where the settings have none."""
    if not listener.config.vhosts:
        return {}
    found = {name: VhostNumbers() for name in ("", *(each.name for each in listener.config.vhosts))}
    for connection in listener.connections():
        found.setdefault(connection.policy.vhost, VhostNumbers()).connections += 1
    if records is not None:
        for publisher in records.figures.publishers():
            numbers = found.setdefault(split_vhost(publisher.topic)[0], VhostNumbers())
            numbers.publishers += publisher.link is not None
            numbers.unsettled += publisher.unsettled
        for subscriber in records.figures.subscribers():
            subscription = records.view.subscriptions.get(subscriber.key)
            if subscription is not None:
                found.setdefault(subscription.record.vhost, VhostNumbers()).subscribers += 1
    return {name or DEFAULT_VHOST: numbers for name, numbers in found.items()}


def _unreachable(incarnation: Incarnation) -> int:
    records, paths = incarnation.records, incarnation.neighbours.routing.next_hops
    return sum(rid != records.rid and rid not in paths for rid in records.view.routers)


def _named(records: Records) -> dict[str, int]:
    return {decision.value: count for decision, count in records.counts.items() if count}
