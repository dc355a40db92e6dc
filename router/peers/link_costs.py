"""Costs of links that an operator has set. They outlive links and incarnations, and end with the process."""

from __future__ import annotations


class LinkCosts:
    """What this router's own direction to a neighbour costs, where an operator says so; by the neighbour's id."""

    def __init__(self) -> None:
        self._by_name: dict[str, int] = {}

    def set(self, node_id: str, cost: int | None) -> None:
        """Set the cost of the direction to this neighbour; None = as the settings of both routers say."""
        if cost is None:
            self._by_name.pop(node_id, None)
        else:
            self._by_name[node_id] = cost

    def get(self, node_id: str, agreed: int) -> int:
        """What counts: what the operator has set, else what the settings of both routers came to."""
        return self._by_name.get(node_id, agreed)
