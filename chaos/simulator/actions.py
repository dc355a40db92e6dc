"""The verbs of a schedule: what each does in a world. Faults begin with `!`.

A world looks its steps up here, so the table knows it by its attributes only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.filters import FILTERS
from chaos.simulator.marks import Mark
from chaos.simulator.strangers import Strangers
from delivery_records.model.view import Kind


def _trim(client: Any, keep: int) -> None:
    """The connection drops and only `keep` of the frames under way to the router arrive (N-1)."""
    connection: SimulatedConnection | None = client.connection
    client.disconnect()
    if connection is not None:
        while len(connection.up) > keep:
            connection.up.pop()


def _half_open(strangers: Strangers, client: Any) -> None:
    """The client goes on elsewhere; its old connection stays open as far as the router knows."""
    connection: SimulatedConnection | None = client.connection
    client.disconnect()
    strangers.leave_open(connection)


def _process(client: Any, mark: Mark) -> None:
    if hasattr(client, "store"):
        client.process(reject=mark is Mark.REJECTED)
    else:
        client.process(mark)


def _release(client: Any) -> None:
    if hasattr(client, "store"):
        client.release()
    else:
        client.process(Mark.RELEASED)


ACTIONS: dict[str, Callable[..., None]] = {
    # clients
    "p.connect": lambda world, p, r: world.publishers[p].connect(r),
    "p.wake": lambda world, p, r: world.strangers.wake(p, r),
    "p.send": lambda world, p: world.publishers[p].send(),
    "p.part": lambda world, p: world.publishers[p].parts.go_on(),
    "p.abort": lambda world, p: world.publishers[p].abort(),
    "p.submit": lambda world, p: world.publishers[p].submit(),
    "p.store": lambda world, p: world.publishers[p].store(),
    "p.stored": lambda world, p: world.publishers[p].stored(),
    "s.connect": lambda world, s, r: world.pairs.connect(s, r, world.choices),
    "s.process": lambda world, s: _process(world.subscribers[s], Mark.ACCEPTED),
    "s.early": lambda world, s: world.subscribers[s].refuse_early(),
    "s.later": lambda world, s: world.subscribers[s].process(newest=True),
    "s.reject": lambda world, s: _process(world.subscribers[s], Mark.REJECTED),
    "s.release": lambda world, s: _release(world.subscribers[s]),
    "s.fail": lambda world, s: _process(world.subscribers[s], Mark.FAILED),
    "s.decline": lambda world, s: _process(world.subscribers[s], Mark.UNDELIVERABLE),
    "s.store": lambda world, s: world.subscribers[s].store(),
    "s.stored": lambda world, s: world.subscribers[s].stored(),
    "c.recv": lambda world, link: world.client_receive(link),
    "c.lost": lambda world, link: world.client_sees_loss(link),
    # routers
    "r.recv": lambda world, link: world.router_receive(link),
    "r.frame": lambda world, sender, receiver: world.router_frame(sender, receiver),
    "r.watch": lambda world, r: world.watch(r),
    "r.reply": lambda world, r: world.reply(r),
    "r.restart": lambda world, r: world.start_router(r),
    "r.fence": lambda world, r: world.members.fence(r),
    "o.end": lambda world, order, r: world.operators.end(order, r, only_if_away=False),
    "o.expire": lambda world, order, r: world.operators.end(order, r, only_if_away=True),
    "r.drained": lambda world, r: world.drains.end(r),
    "r.rejoin": lambda world, r: world.members.rejoin(r),
    # etcd
    "k.lease": lambda world, rid: world.members.end_lease(rid),
    "k.apply": lambda world, serial: world.store.apply(serial),
    "k.together": lambda world, serial: world.store.apply_together(serial),
    "k.miss": lambda world, serial: world.store.miss(serial),
    "k.return": lambda world, _: world.members.come_back(),
    # paths get well
    "n.flow": lambda world, one, other: world.paths.flow(one, other),
    "n.heal": lambda world, one, other: world.paths.repair(one, other),
    "n.end": lambda world, number: world.amqp_sessions.end(number),
    "n.idle": lambda world, link: world.strangers.end(link),
    # faults
    "!crash": lambda world, r: world.stop_router(r),
    "!lose": lambda world, r: world.lose_frames_of(r),
    "!drain": lambda world, r, ms: world.drains.begin(r, ms),
    "!leave": lambda world, r: world.members.leave(r),
    "!blackout": lambda world, _: world.members.black_out(),
    "!stall": lambda world, r, ms: world.members.stall(r, ms),
    "!freeze": lambda world, r, ms: world.members.freeze(r, ms),
    "!isolate": lambda world, r: world.members.isolate(r),
    "!outage": lambda world, _: world.members.outage(),
    "!compact": lambda world, _: world.members.compact(),
    "!relist": lambda world, r: world.members.cancel_watch(r),
    "!restore": lambda world, back: world.members.restore(back),
    "!rollback": lambda world, back: world.members.roll_back(back),
    "!reload": lambda world, _: world.reload(),
    "!reset": lambda world, one, other: world.paths.reset(one, other),
    "!clog": lambda world, one, other: world.paths.clog(one, other),
    "!cut": lambda world, one, other: world.paths.cut_off(one, other),
    "!shed": lambda world, one, other: world.paths.shed(one, other),
    "!twist": lambda world, one, other: world.paths.twist(one, other),
    "!double": lambda world, one, other: world.paths.double(one, other),
    "!drop-p": lambda world, p: world.publishers[p].disconnect(),
    "!drop-s": lambda world, s: world.subscribers[s].disconnect(),
    "!trim-p": lambda world, p, keep: _trim(world.publishers[p], keep),
    "!trim-s": lambda world, s, keep: _trim(world.subscribers[s], keep),
    "!away-p": lambda world, p, s: world.stay_away(world.publishers[p], s),
    "!away-s": lambda world, s, seconds: world.stay_away(world.subscribers[s], seconds),
    "!detach-p": lambda world, p, s: world.amqp_sessions.detach(world.publishers[p], s),
    "!detach-s": lambda world, s, seconds: world.amqp_sessions.detach(world.subscribers[s], seconds),
    "!half-p": lambda world, p: _half_open(world.strangers, world.publishers[p]),
    "!half-s": lambda world, s: _half_open(world.strangers, world.subscribers[s]),
    "!thief-p": lambda world, p, r: world.strangers.attach("p", p, r),
    "!thief-s": lambda world, s, r: world.strangers.attach("s", s, r),
    "!expire-s": lambda world, s: world.key_changes.delete(Kind.SUBSCRIPTION, world.subscription_key(s)),
    "!end-s": lambda world, s, r: world.operators.look(s, r),
    "!expire-p": lambda world, p: world.key_changes.delete(Kind.PUBLISHER, world.publisher_key(p)),
    "!crash-p": lambda world, p: world.publishers[p].crash(),
    "!crash-s": lambda world, s: world.subscribers[s].crash(),
    "!die-p": lambda world, p: world.mortals.kill(p),
    "!torn-p": lambda world, p: world.publishers[p].crash(is_durable=True),
    "!torn-s": lambda world, s: world.subscribers[s].crash(is_durable=True),
    "!pause-p": lambda world, p: world.strangers.pause(world.publishers[p]),
    "!retopic-s": lambda world, s, p: world.subscribers[s].change_topic(world.topic(p)),
    "!refilter-s": lambda world, s, number: world.subscribers[s].change_filter(FILTERS[number]),
    "!early-p": lambda world, p: world.publishers[p].settle_early(),
    "!quit-p": lambda world, p, how: world.publishers[p].quit(how),
    "!close-p": lambda world, p: world.publishers[p].close(),
    "!close-s": lambda world, s: world.subscribers[s].close(),
    "!renew-s": lambda world, s: world.subscribers[s].close(renews=True),
    "wait": lambda world, ms: world.advance(ms / 1000),
}
