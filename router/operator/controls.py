"""The levers of one router process, as management pulls them. What they do is done by those they belong to."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from delivery_records.model.effects import OrderAnswered, OrderEnding
from delivery_records.model.inputs import EndSubscription
from delivery_records.model.limits import UNKNOWN_PUT_S
from delivery_records.model.trace import Choice
from oncewire.cli import log_output
from oncewire.cli.errors import CliError
from oncewire.cli.users import Users
from oncewire.settings.parsers import NotAllowed
from oncewire.wire import CONNECTION_FORCED
from router.authentication.tls import RouterTls
from router.authentication.users import load_users, warn_of_open_file
from router.clients.listener import ClientListener
from router.incarnations.incarnation import Incarnation
from router.incarnations.lifecycle import Lifecycle
from router.operator.access import Access, Caller
from router.operator.arguments import ManagementError
from router.operator.policy import explain, use_of
from router.operator.reload import Reloaded, compare, values_of, with_users
from router.operator.schema import POLICY
from router.operator.trial_messages import TrialMessages, trial_of
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from router.settings.config_loading import SETTINGS, check
from topology.inspector.topic_names_core import topic_name

ORDER_TIMEOUT_S = UNKNOWN_PUT_S + 5.0
"""The record core answers before this, unless the whole router is stalled."""
TRIAL_TRACE_S = 60.0
"""How long the rules applied to a test message are traced: somebody watches it."""
_TRACE_END_S = 1.0
"""After a trace's time: the next step would have ended it by then, and there may be none."""
_CLOSED = "an operator has closed this connection"


class RouterControls:
    """What can be changed at a router."""

    def __init__(
        self,
        router: Lifecycle,
        config: RouterConfig,
        listener: ClientListener,
        access: Access,
        log: EventLog,
        load: Callable[[], RouterConfig] | None,
        tls: RouterTls,
    ) -> None:
        """Steer a router that has no incarnation yet.

        Args:
            router: the process.
            config: the settings it has begun with.
            listener: the connections of its clients.
            access: who may do what.
            log: gets the reloads.
            load: reads the settings again, as at the start; None = it was started without a file.
            tls: its files are read again with the settings.
        """
        self._tls = tls
        self._router = router
        self._config = config
        self._listener = listener
        self._access = access
        self._log = log
        self._load = load
        self._load_keys = None if listener.checks is None else listener.checks.load
        self._incarnation: Incarnation | None = None
        self._trials: TrialMessages | None = None
        self._trial_choice: Choice | None = None
        """What was traced for the last test message."""
        self._trace_end: asyncio.TimerHandle | None = None
        self._orders: dict[int, asyncio.Future[tuple[OrderEnding, int]]] = {}
        self._next_order = 1

    def begin(self, incarnation: Incarnation | None) -> None:
        """Steer this incarnation from now on; what the last one was asked is not known any more."""
        self._incarnation = incarnation
        if self._trials is not None:
            self._trials.stop()
        self._trials = None if incarnation is None else TrialMessages(incarnation)
        for waiting in self._orders.values():
            if not waiting.done():
                waiting.set_result((OrderEnding.UNKNOWN, 0))
        if incarnation is not None:
            incarnation.driver.register(OrderAnswered, self._on_answer)

    @property
    def group(self) -> str:
        """The name by which all workers are called together; empty = this is the only one."""
        return "" if self._config.worker is None else self._config.worker.group

    def config(self) -> dict[str, object]:
        """The settings in force, by their keys."""
        return values_of(self._config)

    async def end_subscription(self, key: str, epoch: int, *, only_if_away: bool) -> tuple[OrderEnding, int]:
        """K-5a: what became of it, and the epoch it has now where that is known."""
        incarnation = self._incarnation
        if incarnation is None or not incarnation.is_serving:
            return OrderEnding.FAILED, 0
        number = self._next_order
        self._next_order += 1
        answer: asyncio.Future[tuple[OrderEnding, int]] = asyncio.get_running_loop().create_future()
        self._orders[number] = answer
        try:
            incarnation.driver.submit([EndSubscription(number, key, epoch, only_if_away)])
            async with asyncio.timeout(ORDER_TIMEOUT_S):
                return await answer
        except TimeoutError:
            return OrderEnding.UNKNOWN, 0
        finally:
            del self._orders[number]

    def _on_answer(self, effect: OrderAnswered) -> None:
        waiting = self._orders.get(effect.order)
        if waiting is not None and not waiting.done():
            waiting.set_result((effect.ending, effect.epoch))

    def close_connection(self, peer: str) -> bool:
        """Close a client's connection; False if there is none from that address."""
        found = [connection for connection in self._listener.connections() if connection.peer == peer]
        for connection in found:
            connection.close(CONNECTION_FORCED, _CLOSED)
        return bool(found)

    def set_cost(self, rid: str, cost: int | None) -> bool:
        """Cost of the direction to a neighbour, None = as settings say; False if there is no link to it."""
        incarnation = self._incarnation
        return incarnation is not None and incarnation.neighbours.set_cost(int(rid, 16), cost)

    def set_log_level(self, level: str) -> None:
        """Log from this level on."""
        self._take(compare(self._config, self._with(log_level=level)))

    def set_policy(self, changes: Mapping[str, object]) -> None:
        """Put rules and groups in force, by the keys of their settings.

        Raises:
            ManagementError: they cannot be used, and nothing has changed.
        """
        found: dict[str, object] = {}
        for name in POLICY:
            setting = SETTINGS[name]
            if setting.key in changes:
                try:
                    found[name] = setting.parse(changes[setting.key])
                except (ValueError, TypeError) as error:
                    why = f"{error}" if isinstance(error, NotAllowed) else "it has another form"
                    raise ManagementError(
                        400, f"{setting.key} cannot be used: {why}", f"{setting.key} is {setting.allowed}"
                    ) from None
        config = self._with(**found)
        try:
            check(config, dict.fromkeys(SETTINGS, "management"))
        except CliError as error:
            raise ManagementError(409, f"{error.what}: {error.why}. Nothing has changed", error.fix) from None
        self._take(compare(self._config, config))

    def explain(self, given: Mapping[str, object]) -> dict[str, object]:
        """Which rules decide for a user and addresses."""
        user = str(given.get("user") or "")
        access = self._access
        role = access.role_of_user(user) if user else access.caller_at("", None).role
        row = explain(self._config, given, role)
        if user and self._incarnation is not None:
            view, vhost = self._incarnation.records.view, str(given.get("vhost") or "")
            row["use"] = use_of(self._listener.uses, view, user, vhost)
        return row

    def _with(self, **changed: object) -> RouterConfig:
        return replace(self._config, **changed)  # type: ignore[arg-type]  # the schema has checked the type

    def drain(self, *, whole_group: bool = False) -> dict[str, object]:
        """K-8a: `limit_s` and `left_s`; of all workers where the whole group is meant. Once more changes nothing."""
        if self._router.draining() is None:
            if whole_group:  # the parent process has all workers drain, and starts none of them again
                os.kill(os.getppid(), signal.SIGTERM)
                limit_s = self._config.drain_limit_s
                return {"limit_s": limit_s, "left_s": limit_s}
            self._router.drain()
        return self._router.draining() or {"limit_s": 0.0, "left_s": 0.0}

    @property
    def can_reload(self) -> bool:
        """Whether there is a file of settings, or one that the settings name, to read again."""
        return bool(self._load or self._load_keys or self._config.users_file) or self._tls.is_used

    def reload(self, *, whole_group: bool = False) -> dict[str, object]:
        """Load the settings again: `changed` and `needs_restart`; at all workers where the whole group is meant.

        Raises:
            ManagementError: the file cannot be used, and nothing has changed.
        """
        if not self.can_reload:
            raise ManagementError(
                409, "this router was started without a file of settings", "start it with --config FILE"
            )
        try:
            reloaded = compare(self._config, self._config if self._load is None else self._load())
            users = load_users(reloaded.config)
            if self._load_keys is not None:
                self._load_keys()
        except CliError as error:
            raise ManagementError(409, f"{error.what}: {error.why}. Nothing has changed", error.fix) from None
        try:
            check(reloaded.config, dict.fromkeys(SETTINGS, "what holds until a restart"))
        except CliError as error:
            reported = f"{error.what}: {error.why}. Nothing has changed"
            raise ManagementError(409, reported, "restart the router: the file is right for one that starts") from None
        if self._tls.is_used:
            reloaded = self._load_certificates(reloaded)
        reloaded = with_users(reloaded, self._listener.users.names, users.names)
        warn_of_open_file(reloaded.config, self._log)
        self._take(reloaded, users)
        self._log.event(
            RouterEvent.CONFIG_RELOADED,
            changed="; ".join(reloaded.changed),
            needs_restart="; ".join(reloaded.needs_restart),
        )
        if whole_group:  # what is right here is right there: this worker reloads once more, which changes nothing
            os.kill(os.getppid(), signal.SIGHUP)
        return reloaded.as_data()

    def load_changed_certificates(self) -> None:
        """Read the files of TLS again if they were replaced; the log says what came of it."""
        if not self._tls.have_changed():
            return
        try:
            loaded = self._load_certificates(Reloaded(self._config, (), ()))
        except ManagementError as error:
            self._log.event(RouterEvent.CONFIG_REFUSED, why=str(error), fix=error.fix)
            return
        self._log.event(RouterEvent.CONFIG_RELOADED, changed="; ".join(loaded.changed), needs_restart="")

    def _load_certificates(self, reloaded: Reloaded) -> Reloaded:
        try:
            self._tls.load()
        except CliError as error:
            raise ManagementError(409, f"{error.what}: {error.why}. Nothing has changed", error.fix) from None
        self._listener.close_revoked(self._tls.is_revoked)
        if self._incarnation is not None:
            self._incarnation.neighbours.close_revoked(self._tls.is_revoked)
        return replace(reloaded, changed=(*reloaded.changed, "the files of tls.*: read again, for new connections"))

    def _take(self, reloaded: Reloaded, users: Users | None = None) -> None:
        """What can change, changes everywhere in this one turn of the loop."""
        self._config = reloaded.config
        self._access.use(reloaded.config, users)
        self._listener.use(reloaded.config, users)
        self._router.use_config(reloaded.config)
        log_output.set_level(reloaded.config.log_level)

    async def publish(self, topic: str, body: str, caller: Caller) -> dict[str, object]:
        """Publish a test message to a topic as operators name it; its network tag, and its outcome if it came soon.

        Raises:
            ManagementError: it cannot be published.
            AccessDenied: rules of access do not allow it.
        """
        if self._trials is None or self._incarnation is None or not self._incarnation.is_serving:
            raise ManagementError(503, "this router accepts no clients just now", "try again")
        named, owner = trial_of(self._config, topic, body, caller)
        trace = self._incarnation.records.trace
        if not trace.is_on or trace.choice == self._trial_choice:  # an operator's own trace is left alone
            self._trial_choice = Choice(publishers=frozenset({self._trials.next_name()}), time_s=TRIAL_TRACE_S)
            self.trace(self._trial_choice)
        return await self._trials.publish(named, body, owner)

    def trace(self, choice: Choice | None) -> dict[str, object]:
        """Trace deliveries, None = no more; what is traced now.

        Raises:
            ManagementError: there is no incarnation to trace in.
        """
        if self._incarnation is None:
            raise ManagementError(503, "this router has no lease in etcd just now", "try again")
        trace = self._incarnation.records.trace
        now = time.monotonic()
        if self._trace_end is not None:
            self._trace_end.cancel()
        if choice is None:
            trace.stop()
            return {"on": False, "steps": len(trace)}
        trace.start(choice, now)
        loop = asyncio.get_running_loop()
        self._trace_end = loop.call_later(choice.time_s + _TRACE_END_S, self._end_trace)
        return {
            "on": True,
            "left_s": round(trace.left_s(now), 1),
            "sample": choice.sample,
            "topics": sorted(map(topic_name, choice.topics)),
            "publishers": sorted(choice.publishers),
        }

    def _end_trace(self) -> None:
        """Its time is over, also where no delivery meets it any more."""
        if self._incarnation is not None:
            self._incarnation.records.trace.stop()
