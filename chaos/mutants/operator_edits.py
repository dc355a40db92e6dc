"""Edits of what an operator's order does (rule K-5a)."""

from __future__ import annotations

from chaos.mutants.edits import Edit

OPERATOR_EDITS: tuple[Edit, ...] = (
    Edit(
        "ended-as-it-stands",
        "K-5a",
        "        epoch = order.epoch  # K-5a: what he was shown, and not what stands now\n",
        "        epoch = order.epoch if subscription is None else subscription.epoch\n",
        "an operator who has seen a subscription alone ends it although its subscriber is back",
        aim=("end-s", "drop-s", "routers=2"),
    ),
    Edit(
        "ended-before-the-watch",
        "K-5a",
        "            inputs.EndSubscription: self._orders.start,\n",
        "            inputs.EndSubscription: lambda order: (\n"
        "                self._orders.start(order),\n"
        "                self.turn.out and isinstance(self.turn.out[-1], effects.Propose)\n"
        "                and [each.on_subscription_deleted(order.key, '') for each in self.ingresses.values()],\n"
        "            ),\n",
        "a router that forgets at once what a subscription is owed accepts it although the deletion fails",
        aim=("end-s", "drop-s", "routers=2", "slow_store=1"),
    ),
)
