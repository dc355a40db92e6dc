"""Where the subscriptions of one publisher are: egresses of this router, and channels to others."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from delivery_records.channels.channel import Channel, Channels, Line
from delivery_records.model.turn import Turn
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.to_egresses import ToEgresses


class Destinations:
    """Found anew when a subscription or an egress has changed (`Turn.plan_version`), and not for each message."""

    __slots__ = (
        "_channels",
        "_to_egresses",
        "_turn",
        "all_local",
        "all_remote",
        "local",
        "remote",
        "version",
        "weight",
    )

    def __init__(self, turn: Turn, to_egresses: ToEgresses, channels: Channels) -> None:
        """None yet."""
        self._turn = turn
        self._to_egresses = to_egresses
        self._channels = channels
        self.version = -1
        """The plan's version that they were found at."""
        self.local: list[Egress] = []
        self.remote: list[Channel] = []
        """What is simply sent to all goes to these."""
        self.all_local: list[Egress] = []
        self.all_remote: list[Channel] = []
        """The same, and where members of shared subscriptions are: SETTLE goes there, too."""
        self.weight = 1
        """What one message costs this router, in deliveries and in messages to other routers."""

    def find(self, joined: Iterable[str], shared: Collection[str]) -> None:
        """Of the subscriptions that have joined, and of the members of those that are shared, by their keys."""
        turn = self._turn
        self.version = turn.plan_version
        self.local = []
        remote: dict[int, Channel] = {}
        for key in joined:
            self._add(key, turn.view.subscriptions[key].record.rid, self.local, remote)
        members: list[Egress] = []
        all_remote = dict(remote)
        for key in shared:
            for member in turn.view.members_of.get(key, {}).values():
                self._add(member.key, member.record.rid, members, all_remote)
        self.remote = list(remote.values())
        self.all_local = [*self.local, *members] if members else self.local
        self.all_remote = list(all_remote.values())
        of_members = max((egress.weight() for egress in members), default=1)  # one of them gets it
        self.weight = sum(egress.weight() for egress in self.local) + len(remote) + len(shared) * of_members

    def _add(self, key: str, rid: int, local: list[Egress], remote: dict[int, Channel]) -> None:
        if rid == self._turn.rid:
            egress = self._to_egresses.egresses.get(key)
            if egress is not None:
                local.append(egress)
        elif rid not in remote and rid in self._turn.view.routers:
            remote[rid] = self._channels.channel(rid)

    def longest_line(self, epoch: int) -> Line | None:
        """C-1: what waits of the publisher at the channel where most of it waits."""
        longest: Line | None = None
        for channel in self.all_remote:
            if channel.lines:
                line = channel.lines.get(epoch)
                if line is not None and (longest is None or line.bodies > longest.bodies):
                    longest = line
        return longest
