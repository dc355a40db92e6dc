"""What is between a router and etcd: requests and answers may be slow, lost, or later than their sender's death."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.simulator import coverage
from chaos.simulator.routers import Router
from chaos.simulator.state import WorldState
from chaos.simulator.steps import Choice
from delivery_records.model import effects, inputs


@dataclass(frozen=True, slots=True)
class Request:
    """A read or a proposal on its way to etcd."""

    router: int
    rid: int
    effect: effects.Read | effects.Propose


class StoreAccess:
    """Carries requests to etcd and answers back."""

    def __init__(self, world: WorldState) -> None:
        """Serve the routers of `world`."""
        self._world = world
        self._etcd = world.etcd
        self._requests: dict[int, Request] = {}
        self._serial = 0

    def __len__(self) -> int:
        """Requests that have not arrived."""
        return len(self._requests)

    def ask(self, router: Router, effect: effects.Read | effects.Propose) -> None:
        """A router sends a request."""
        if self._world.traits.slow_store:
            self._serial += 1
            self._requests[self._serial] = Request(router.index, router.rid, effect)
        elif router.is_isolated:
            router.replies.append(inputs.StoreFailed(effect.nonce, inputs.StoreFailure.UNAVAILABLE))
        else:
            self._carry_out(router, effect)

    def _carry_out(self, router: Router, effect: effects.Read | effects.Propose) -> None:
        if isinstance(effect, effects.Read):
            router.replies.append(self._etcd.read(effect.nonce, effect.key))
        elif not self._etcd.compare_and_swap(effect.key, effect.expect, effect.record, effect.shared):
            router.replies.append(inputs.StoreFailed(effect.nonce, inputs.StoreFailure.CONFLICT))

    def choices(self) -> list[Choice]:
        """A request under way arrives; one of a router that is cut off may also be lost."""
        together = self._together() if self._world.traits.together and self._etcd.is_up else []
        return self._choices() + together

    def _together(self) -> list[Choice]:
        """A-2e: writes of one sort that wait at a router go in one transaction, named by the first of them."""
        groups: dict[tuple[int, str], list[int]] = {}
        for serial, request in self._requests.items():
            if isinstance(request.effect, effects.Propose) and request.effect.shared is None:
                groups.setdefault((request.rid, _sort(request.effect)), []).append(serial)
        return [("k.together", group[0]) for group in groups.values() if len(group) > 1]

    def apply_together(self, serial: int) -> None:
        """A transaction arrives: what waits with this write. It has one end (K-2a)."""
        first = self._requests[serial]
        assert isinstance(first.effect, effects.Propose)
        writes: dict[str, effects.Propose] = {}
        for other, request in list(self._requests.items()):
            write = request.effect
            if request.rid != first.rid or not isinstance(write, effects.Propose) or write.shared is not None:
                continue
            if _sort(write) == _sort(first.effect) and write.key not in writes:
                writes[write.key] = write
                del self._requests[other]
        done = self._etcd.write_each(list(writes.values()))
        self._world.coverage[coverage.TOGETHER] += sum(done) > 1
        router = self._world.routers[first.router]
        if router.rid != first.rid or router.records is None:
            self._world.coverage[coverage.DEAD_PUT] += any(done)
            return
        for write, is_done in zip(writes.values(), done, strict=True):
            if router.is_isolated:
                self._world.coverage[coverage.UNKNOWN_PUT] += is_done
                self._fail(router, write)
            elif not is_done:
                router.replies.append(inputs.StoreFailed(write.nonce, inputs.StoreFailure.CONFLICT))

    def _choices(self) -> list[Choice]:
        if self._etcd.is_up and not any(router.is_isolated for router in self._world.routers):
            return [("k.apply", serial) for serial in self._requests]
        found: list[Choice] = []
        for serial, request in self._requests.items():
            if self._etcd.is_up:
                found.append(("k.apply", serial))
            if self._is_cut_off(self._world.routers[request.router]):
                found.append(("k.miss", serial))
        return found

    def forget(self) -> None:
        """Nothing is under way any more."""
        self._requests.clear()

    def _is_cut_off(self, router: Router) -> bool:
        return router.is_isolated or not self._etcd.is_up

    def apply(self, serial: int) -> None:
        """A request arrives. The answer to a router that was cut off meanwhile is lost: its fate is unknown (K-2a)."""
        request = self._requests.pop(serial)
        router = self._world.routers[request.router]
        is_there = router.rid == request.rid and router.records is not None
        if is_there and not router.is_isolated:
            self._carry_out(router, request.effect)
            return
        propose = request.effect
        if isinstance(propose, effects.Propose):  # a dead router's put may still arrive
            done = self._etcd.compare_and_swap(propose.key, propose.expect, propose.record, propose.shared)
            self._world.coverage[coverage.UNKNOWN_PUT if is_there else coverage.DEAD_PUT] += done
        if is_there:
            self._fail(router, request.effect)

    def miss(self, serial: int) -> None:
        """A request never arrives."""
        request = self._requests.pop(serial)
        router = self._world.routers[request.router]
        if router.rid == request.rid and router.records is not None:
            self._fail(router, request.effect)

    def _fail(self, router: Router, effect: effects.Read | effects.Propose) -> None:
        read = isinstance(effect, effects.Read)
        failure = inputs.StoreFailure.UNAVAILABLE if read else inputs.StoreFailure.UNKNOWN
        router.replies.append(inputs.StoreFailed(effect.nonce, failure))


def _sort(write: effects.Propose) -> str:
    """Writes of one sort go together: puts of subscriptions, puts of publishers, deletions."""
    return "" if write.record is None else write.key.partition("/")[0]
