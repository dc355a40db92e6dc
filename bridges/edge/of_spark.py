"""Spark at an edge: a bridge node in the same process, for queries that keep their offsets and for their sinks.

The node keeps a folder of its own, as `oncewire bridge node` with the same file does: what a query has read of its
journal stays valid when the node moves into an edge, and out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bridges.edge.of_queues import named
from bridges.edge.part import Ground, Kind, Part
from oncewire.settings.schema import REQUIRED, Setting

if TYPE_CHECKING:
    from bridges.node.node import BridgeNode
    from bridges.node.settings_loading import DaemonSettings


class SparkPart(Part):
    """One node."""

    def __init__(self, _ground: Ground, name: str, values: Mapping[str, Any]) -> None:
        """Open nothing yet."""
        super().__init__(name)
        self._settings: DaemonSettings = values["config"]
        self._node: BridgeNode | None = None

    @property
    def trouble(self) -> str:
        """See Part."""
        return "it starts" if self._node is None else "; ".join(self._node.waiting_for())

    async def run(self) -> None:
        """Serve pipelines until cancelled."""
        from bridges.node.arrow_bodies import arrow
        from bridges.node.running import serve

        arrow()
        try:
            await serve(self._settings, self._started)
        finally:
            self._node = None

    def _started(self, node: BridgeNode, _described: dict[str, object]) -> None:
        self._node = node


def _node_file(value: object) -> DaemonSettings:
    """The settings of a node; read here, so that a reload sees what has changed in its file.

    Raises:
        CliError: something in the file cannot be used.
    """
    from bridges.node.settings_loading import load

    if not isinstance(value, str) or not value:
        raise TypeError
    return load(value)


def _name(values: Mapping[str, Any]) -> str:
    return str(values["config"].node.name)


SPARK = Kind(
    "spark",
    named(
        (
            Setting(
                "spark.config",
                _node_file,
                REQUIRED,
                "the settings of a bridge node, a TOML file",
                "Spark's queries and sinks find it where that file says (`listen.host`, `listen.port`): see "
                "`oncewire bridge node --print-config`. Its `log.level` is that of the edge.",
            ),
        )
    ),
    _name,
    SparkPart,
    has_owner=False,
)
