"""Channels between routers: FIFO or restarted, with byte credit for bodies (rules T-1 to T-9).

One channel joins this incarnation with one other. Frames are numbered; a receiver takes only the next number. Nothing
is retransmitted: the publisher's window is the retransmission buffer, so after a gap both sides open a new generation
and repeat I-5 for their publishers.

What the receiver has taken is at each moment a prefix of what this end has numbered in the generation. The transport
below may lose, double and reorder. A gap shows with the next number; a lost tail shows with HELLO, which states how
many frames were sent, and is repeated while the other end has not confirmed them (T-9). Either end may open the next
generation, also both at once: the higher one wins, and frames of a lower one are dropped.

A channel is OPENING until the other end has shown that it knows the generation, by a HELLO or by frame 1. In the first
generation frames wait for that, for nothing repeats what was sent settled (T-4). In later ones they are dropped, and
when the channel is UP `on_up` has every publisher of this router repeat its SYNCs. ACKs that are dropped are stated
again by the egress, in answer to the SYNC of the ingress (E-2).

Control frames never wait for credit; bodies do, in a line for each publisher, and so does all that follows of the same
publisher (T-6). A number is given when a frame leaves, so others may go ahead of what waits. The reader gives new
credit by bytes that it has taken and never stops reading, so full buffers cannot form a cycle (T-5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from delivery_records.model import effects
from delivery_records.model.expiry_times import remaining_ms
from delivery_records.model.inputs import PathsChanged
from delivery_records.model.limits import (
    CHANNEL_CREDIT_BYTES,
    HELLO_RETRY_CAP_S,
    HELLO_RETRY_S,
    MESSAGE_CHUNK_BYTES,
    PROBE_S,
    STREAM_FRAMES,
)
from delivery_records.model.messages import (
    Credit,
    ExpiringMsg,
    Hello,
    LargePart,
    Msg,
    MsgPart,
    RouterMessage,
    ToEgress,
    ToIngress,
)
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.trace import Rule
from delivery_records.model.turn import Turn


class ChannelState(Enum):
    """OPENING until the other side has answered this generation's HELLO."""

    OPENING = "opening"
    UP = "up"


# For what is done with every frame: to look a member up in its class costs as much as a call.
_OPENING = ChannelState.OPENING
_UP = ChannelState.UP


class Line:
    """Frames of one publisher that wait for a channel, in order."""

    __slots__ = ("bodies", "frames", "size")

    def __init__(self) -> None:
        """Nothing waits."""
        self.frames: deque[RouterMessage] = deque()
        self.bodies = 0
        """Messages among them, each as often as it is to be sent."""
        self.size = 0
        """Bytes of those."""

    def append(self, message: RouterMessage) -> None:
        """It waits behind the others."""
        self.frames.append(message)
        if isinstance(message, Msg):
            self.bodies += 1
            self.size += len(message.message)

    def end_body(self, size: int) -> None:
        """The first one has gone out whole."""
        self.frames.popleft()
        self.bodies -= 1
        self.size -= size


class Channel:
    """This router's end of the channel to one other router incarnation."""

    __slots__ = (
        "_body_received",
        "_body_sent",
        "_credit_given",
        "_credit_taken",
        "_hello_delay",
        "_is_first",
        "_on_restart",
        "_on_sent",
        "_on_up",
        "_parts",
        "_probed",
        "_turn",
        "generation",
        "lines",
        "received",
        "rid",
        "sent",
        "state",
    )

    def __init__(
        self,
        turn: Turn,
        rid: int,
        on_up: Callable[[int], None],
        on_restart: Callable[[int], None],
        on_sent: Callable[[int], None],
    ) -> None:
        """Open generation 1; frames wait for the answer (T-4). The callbacks are those of `Channels`."""
        self._turn = turn
        self._on_up = on_up
        self._on_restart = on_restart
        self._on_sent = on_sent
        self.rid = rid
        self.generation = 0
        self._reset(1)
        self._is_first = True
        """Nothing was ever sent: all that was to be sent waits, and is not repeated."""
        self._say_hello()

    def _reset(self, generation: int) -> None:
        self.generation = generation
        self.state = ChannelState.OPENING
        self.sent = 0
        self.received = 0
        self._probed = 0
        self._hello_delay = HELLO_RETRY_S
        self._body_sent = 0
        self._body_received = 0
        self._credit_taken = CHANNEL_CREDIT_BYTES
        self._credit_given = CHANNEL_CREDIT_BYTES
        self.lines: dict[int, Line] = {}
        """What waits, by publisher epoch: for the opening, or for credit (T-5)."""
        self._is_first = False
        self._parts: dict[tuple[int, int], bytearray] = {}

    # ------------------------------------------------------------------ generation (T-4, T-9)

    def _say_hello(self) -> None:
        hello = Hello(self.generation, False, self.sent, self.received, self._turn.view.applied)
        self._turn.out.append(effects.SendDatagram(self.rid, hello))
        self._turn.timers.set(Timer.CHANNEL, self.rid, self._turn.now + self._hello_delay)
        self._hello_delay = min(self._hello_delay * 2, HELLO_RETRY_CAP_S)

    def restart(self, reason: str) -> None:
        """T-4: open a new generation; everything unsent is dropped."""
        self._note(Decision.CHANNEL_RESTARTED, reason=reason)
        self._reset(self.generation + 1)
        self._on_restart(self.rid)
        self._say_hello()

    def on_hello(self, hello: Hello) -> None:
        """Adopt a newer generation; answer; notice lost frames."""
        if hello.generation < self.generation:
            if not hello.is_reply:
                self._answer()  # states our newer generation to the sender
            return
        if hello.generation > self.generation:
            self._reset(hello.generation)
            self._on_restart(self.rid)
            if hello.is_reply:
                self._say_hello()
                return
        if not hello.is_reply:
            self._answer()
        if self.state is ChannelState.OPENING:
            self._up()
        elif hello.sent > self.received:
            self.restart("frames were lost on the way")  # T-9
        elif hello.is_reply and hello.received >= self._probed:
            self._probed = max(self._probed, hello.received)
            self._hello_delay = HELLO_RETRY_S

    def _answer(self) -> None:
        reply = Hello(self.generation, True, self.sent, self.received, self._turn.view.applied)
        self._turn.out.append(effects.SendDatagram(self.rid, reply))

    def _up(self) -> None:
        self.state = ChannelState.UP
        self._hello_delay = HELLO_RETRY_S
        self._turn.timers.cancel(Timer.CHANNEL, self.rid)
        self._note(Decision.CHANNEL_UP)
        if self._is_first:
            self._is_first = False
            self._pump()
        else:
            self._on_up(self.rid)

    def _note(self, decision: Decision, **fields: object) -> None:
        self._turn.note(decision, other=self._name, rid=f"{self.rid:x}", generation=self.generation, **fields)

    @property
    def _name(self) -> str:
        """The other router's id, for people."""
        router = self._turn.view.routers.get(self.rid)
        return f"{self.rid:x}" if router is None else router.record.node_id

    @property
    def is_stray(self) -> bool:
        """Opened by a frame of a router that was gone before our first snapshot."""
        return self.rid not in self._turn.view.routers and self._hello_delay >= HELLO_RETRY_CAP_S

    def on_timer(self) -> None:
        """HELLO again while opening; probe the tail while frames are not known to have arrived (T-9)."""
        if self.state is ChannelState.OPENING or self._probed < self.sent:
            self._hello_delay = max(self._hello_delay, PROBE_S if self.state is ChannelState.UP else HELLO_RETRY_S)
            self._say_hello()

    def on_path_moved(self) -> None:
        """The next hop changed: frames may be lost, so ask at once (T-9)."""
        self._hello_delay = HELLO_RETRY_S
        if self.state is ChannelState.OPENING or self._probed < self.sent or self.received:
            self._say_hello()

    # ------------------------------------------------------------------ sending (T-2, T-5, T-6)

    def send_control(self, message: RouterMessage) -> None:
        """A frame that needs neither credit nor an order among publishers (ACK, NACK, CREDIT)."""
        if self.state is ChannelState.UP:
            self._turn.out.append(effects.SendToRouters((self.take_number(),), message))

    def send_stream(self, publisher_epoch: int, message: RouterMessage) -> None:
        """SYNC, MSG and SETTLE of one publisher keep their order (T-6)."""
        is_up = self.state is ChannelState.UP
        if is_up and self._may_pass(publisher_epoch, message):
            self._trace(message, Rule.SENT_ON)
            self._turn.out.append(effects.SendToRouters((self.take_number(),), message))
            return
        if not is_up and not self._is_first:
            self._trace(message, Rule.WAITS_FOR_REOPENING)
            return
        self._trace(message, Rule.WAITS_FOR_CHANNEL if is_up else Rule.WAITS_FOR_OPENING)
        line = self.lines.get(publisher_epoch)
        if line is None:
            line = self.lines[publisher_epoch] = Line()
        line.append(message)
        if len(line.frames) > STREAM_FRAMES:
            self.restart("too many frames wait")
        elif is_up:
            self._pump()

    def may_join_broadcast(self, publisher_epoch: int, message: RouterMessage) -> bool:
        """True when the message may go out now, in one frame with other targets (T-2)."""
        return self.state is _UP and self._may_pass(publisher_epoch, message)

    def take_number(self) -> tuple[int, int, int]:
        """The target of the next frame: (rid, generation, sequence)."""
        self.sent += 1
        if not self._turn.timers.is_set(Timer.CHANNEL, self.rid):
            self._turn.timers.set(Timer.CHANNEL, self.rid, self._turn.now + PROBE_S)
        return (self.rid, self.generation, self.sent)

    def _may_pass(self, publisher_epoch: int, message: RouterMessage) -> bool:
        if publisher_epoch in self.lines:
            return False
        if isinstance(message, Msg):
            size = len(message.message)
        elif isinstance(message, LargePart):
            size = len(message.data)
        else:
            return True
        if size > MESSAGE_CHUNK_BYTES or self._body_sent + size > self._credit_taken:
            return False
        self._body_sent += size
        return True

    def _pump(self) -> None:
        """Send what waits, one chunk per publisher in turn, as far as the byte credit goes (T-5, T-6)."""
        shorter: dict[int, None] = {}
        progressed = True
        while progressed and self.lines:
            progressed = False
            for epoch in list(self.lines):
                line = self.lines[epoch]
                if self._send_head(line):
                    progressed = True
                    shorter[epoch] = None
                    if not line.frames:
                        del self.lines[epoch]
        for epoch in shorter:
            self._on_sent(epoch)

    def _send_head(self, line: Line) -> bool:
        head = line.frames[0]
        if isinstance(head, Msg) and len(head.message) > MESSAGE_CHUNK_BYTES:
            line.frames[0] = head = MsgPart(_without_body(head), 0, len(head.message), head.message)
        if isinstance(head, MsgPart):
            return self._send_part(line, head)
        if isinstance(head, (Msg, LargePart)):
            size = len(head.message if isinstance(head, Msg) else head.data)
            if self._body_sent + size > self._credit_taken:
                return False
            self._body_sent += size
        if isinstance(head, Msg):
            line.end_body(len(head.message))
            if isinstance(head, ExpiringMsg):
                head = _aged(head, self._turn.now)
        else:
            line.frames.popleft()
        self._trace(head, Rule.SENT_ON)
        self._turn.out.append(effects.SendToRouters((self.take_number(),), head))
        return True

    def _send_part(self, line: Line, rest: MsgPart) -> bool:
        """I-1a: large bodies travel in pieces. `rest.data` is the whole body, `offset` what is sent already."""
        size = min(MESSAGE_CHUNK_BYTES, rest.total - rest.offset)
        if self._body_sent + size > self._credit_taken:
            return False
        self._body_sent += size
        piece = rest.data[rest.offset : rest.offset + size]
        head = _aged(rest.head, self._turn.now) if isinstance(rest.head, ExpiringMsg) else rest.head
        self._turn.out.append(
            effects.SendToRouters((self.take_number(),), MsgPart(head, rest.offset, rest.total, piece))
        )
        if rest.offset + size == rest.total:
            self._trace(rest.head, Rule.SENT_ON)
            line.end_body(rest.total)
        else:
            line.frames[0] = MsgPart(rest.head, rest.offset + size, rest.total, rest.data)
        return True

    def trace_sent(self, message: RouterMessage) -> None:
        """It goes out in a frame with other targets (T-2)."""
        self._trace(message, Rule.SENT_ON)

    def _trace(self, message: RouterMessage, rule: Rule) -> None:
        turn = self._turn
        if turn.tracing is not None and isinstance(message, Msg):
            turn.tracing.of_epoch(message.publisher_epoch, message.tag, rule, self._name)

    # ------------------------------------------------------------------ receiving (T-1)

    def on_frame(self, generation: int, sequence: int, message: RouterMessage) -> RouterMessage | None:
        """Take the next frame; None when it is stale, out of sequence, or a piece of a larger message."""
        if generation < self.generation:
            self._turn.counts[Decision.FRAME_STALE] += 1
            return None
        if generation > self.generation or self.state is _OPENING:
            if generation > self.generation:
                self._reset(generation)
                self._on_restart(self.rid)
            if sequence != 1:
                self._say_hello()
                return None
            self._up()  # a frame of this generation proves that the other side has opened it
        if sequence <= self.received:
            self._turn.counts[Decision.FRAME_STALE] += 1
            return None
        if sequence != self.received + 1:
            self._turn.counts[Decision.FRAME_OUT_OF_SEQUENCE] += 1
            self.restart("a frame is missing")
            return None
        self.received = sequence
        if isinstance(message, Credit):
            self._credit_taken = max(self._credit_taken, message.granted_bytes)
            self._pump()
            return None
        if isinstance(message, MsgPart):
            return self._assemble(message)
        if isinstance(message, Msg):
            self._count_body(len(message.message))
        elif isinstance(message, LargePart):
            self._count_body(len(message.data))
        return message

    def _assemble(self, part: MsgPart) -> RouterMessage | None:
        self._count_body(len(part.data))
        key = (part.head.publisher_epoch, part.head.number)
        body = self._parts.setdefault(key, bytearray())
        if part.offset == 0:
            body.clear()
        if part.offset != len(body):
            self.restart("pieces of a message do not fit together")
            return None
        body += part.data
        if len(body) < part.total:
            return None
        del self._parts[key]
        whole = _without_body(part.head)
        whole.message = bytes(body)
        return whole

    def _count_body(self, size: int) -> None:
        """T-5: the reader never stops; what is under way is bounded by the credit it gave."""
        self._body_received += size
        if self._credit_given - self._body_received <= CHANNEL_CREDIT_BYTES // 2:
            self._credit_given = self._body_received + CHANNEL_CREDIT_BYTES
            self.send_control(Credit(self._credit_given))

    @property
    def waiting(self) -> int:
        """Frames that wait: for the opening, or for credit."""
        return sum(len(line.frames) for line in self.lines.values())


def _without_body(message: Msg) -> Msg:
    bare = Msg(
        message.publisher_epoch,
        message.number,
        message.tag,
        b"",
        message.to,
        message.redelivered,
        message.settled,
        message.attempt,
        message.after,
        message.message_format,
        message.assigned,
        message.is_large,
    )
    return ExpiringMsg(bare, message.ttl_ms, message.expires_at) if isinstance(message, ExpiringMsg) else bare


def _aged(message: ExpiringMsg, now: float) -> ExpiringMsg:
    """E-10: what has waited for credit has less time left."""
    return ExpiringMsg(message, remaining_ms(message.expires_at, now), message.expires_at)


class Channels:
    """The channels to all live routers of the view."""

    __slots__ = ("_channels", "_on_restart", "_on_sent", "_on_up", "_turn")

    def __init__(
        self,
        turn: Turn,
        on_up: Callable[[int], None],
        on_restart: Callable[[int], None],
        on_sent: Callable[[int], None],
    ) -> None:
        """No channel yet; they open with the first BARRIER, when first needed or when the other side says HELLO.

        Args:
            turn: of this router.
            on_up: called with a router's incarnation when its channel is up again: I-5 is repeated for it (T-4).
            on_restart: called when it starts over: what the old generation left parked is dropped (T-4).
            on_sent: called with the epoch of a publisher of which something has waited, and less may wait now (C-1).
        """
        self._turn = turn
        self._on_up = on_up
        self._on_restart = on_restart
        self._on_sent = on_sent
        self._channels: dict[int, Channel] = {}

    def channel(self, rid: int) -> Channel:
        """The channel to a live router, opened if needed."""
        found = self._channels.get(rid)
        if found is None:
            found = self._channels[rid] = Channel(self._turn, rid, self._on_up, self._on_restart, self._on_sent)
        return found

    def existing(self) -> Sequence[Channel]:
        """All channels, for timers and tables."""
        return list(self._channels.values())

    def find(self, rid: int) -> Channel | None:
        """The channel if it is open or opening."""
        return self._channels.get(rid)

    def drop(self, rid: int) -> None:
        """The router is gone from the view."""
        if self._channels.pop(rid, None) is not None:
            self._turn.timers.cancel(Timer.CHANNEL, rid)

    def broadcast(self, channels: Sequence[Channel], message: ToEgress) -> None:
        """T-2: one frame for all channels that can take it now; the others queue it."""
        targets = []
        tracing = self._turn.tracing
        for channel in channels:
            if channel.may_join_broadcast(message.publisher_epoch, message):
                if tracing is not None:
                    channel.trace_sent(message)
                targets.append(channel.take_number())
            else:
                channel.send_stream(message.publisher_epoch, message)
        if targets:
            self._turn.out.append(effects.SendToRouters(tuple(targets), message))

    def send_control(self, rid: int, message: ToIngress) -> None:
        """Send to the ingress at a live router."""
        if rid in self._turn.view.routers:
            self.channel(rid).send_control(message)

    def send_stream(self, rid: int, message: ToEgress) -> None:
        """Send to the egresses at a live router."""
        if rid in self._turn.view.routers:
            self.channel(rid).send_stream(message.publisher_epoch, message)

    def on_paths(self, paths: PathsChanged) -> None:
        """Next hops changed."""
        for channel in self.existing():
            if channel.rid in paths.moved and channel.rid in paths.reachable:
                channel.on_path_moved()

    def on_timer(self, rid: int) -> None:
        """A channel wants to say HELLO again, or nobody wants it any more."""
        channel = self._channels.get(rid)
        if channel is not None:
            if channel.is_stray:
                self.drop(rid)
            else:
                channel.on_timer()
