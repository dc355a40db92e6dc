"""C-6: the windows of AMQP sessions, over real engines: no message that has come in part waits for itself."""

from __future__ import annotations

from delivery_records.model.budget import Budget
from delivery_records.model.limits import FINISHER_PATIENCE_S, FIRST_CREDIT
from oncewire.wire import (
    ACCEPTED,
    Connection,
    DeliveryReceived,
    LinkAttached,
    ReceiverLink,
    Role,
    SenderLink,
    SessionEndpoint,
    Source,
    Target,
)
from router.amqp.offers import IDLE_BYTES, QUICK_S, Offers
from router.clients.session_window import FIRST_WINDOW, ROUTER_PART, STREAM_BYTES, SessionWindows, Stored, WindowLimits

KIB = 1024
FRAME = 4 * KIB
MESSAGE = 64 * KIB


class Session:
    """A client and a router's engine, whose window is looked at after each read of one frame's size."""

    CREDIT = 10_000

    def __init__(
        self, limits: WindowLimits, budget: Budget, name: str = "client", offers: Offers | None = None
    ) -> None:
        self.server = Connection(Role.SERVER, container_id="router", max_frame_size=FRAME, incoming_window=FIRST_WINDOW)
        self.client = Connection(Role.CLIENT, container_id=name, max_frame_size=FRAME)
        self.windows = SessionWindows(limits)
        self.windows.resumes = True
        self.budget = budget
        self.offers = offers or Offers()
        self.sizes: list[int] = []
        self.is_woken = False
        self._unread = b""
        self.client.open()
        self.session = self.client.begin()
        self.now = 0.0

    def sender(self, name: str = "link") -> SenderLink:
        link = self.session.attach_sender(name, source=Source(), target=Target("t"))
        while self.step():
            pass
        return link

    def step(self) -> bool:
        """One read of the router, and what it answers; whether anything moved."""
        self._unread += self.client.data_to_send()
        data, self._unread = self._unread[:FRAME], self._unread[FRAME:]
        self.server.receive_data(data, 0.0)
        for event in self.server.events():
            if isinstance(event, LinkAttached) and isinstance(event.link, ReceiverLink):
                event.link.reply(source=Source(), target=Target("t"))
                event.link.grant(self.CREDIT)
            elif isinstance(event, DeliveryReceived):
                self.sizes.append(len(event.payload))
                event.link.dispose([event.delivery_id], ACCEPTED, True)
        sessions: dict[SessionEndpoint, Stored] = {session: self.stored_now() for session in self.server.sessions}
        self.is_woken = self.windows.update(sessions, self.budget, self.offers, self.now)
        answer = self.server.data_to_send()
        self.client.receive_data(answer, 0.0)
        self.client.events()
        return bool(data or answer)

    def stored_now(self) -> Stored:
        """What its publishers hold."""
        return Stored(publishers=1)

    @property
    def window(self) -> int:
        return self.server.sessions[0].offered_frames


def run(*sessions: Session) -> None:
    """One step each, until nothing moves."""
    while sum(session.step() for session in sessions):
        pass
    for session in sessions:
        session.step()


def test_a_message_of_the_largest_size_is_taken_whatever_part_of_the_window_it_has_filled() -> None:
    """The window closed behind the last frames of it, and its own bytes were what it waited for."""
    for window_bytes in (FRAME // 2, MESSAGE // 4, MESSAGE):
        for size in (MESSAGE - FRAME, MESSAGE - 1, MESSAGE):
            session = Session(WindowLimits(window_bytes, FRAME, MESSAGE), Budget(1024 * KIB))
            session.sender().send(b"1", bytes(size))
            run(session)
            assert session.sizes == [size]
            assert session.budget.held == 0


def test_messages_that_fill_the_router_in_part_are_completed_one_session_after_the_other() -> None:
    """Ten honest publishers stopped for ever: each held a part, and no room was left for the rest of any."""
    budget = Budget(4 * MESSAGE)
    limits = WindowLimits(16 * MESSAGE, FRAME, MESSAGE)
    offers = Offers()
    sessions = [Session(limits, budget, f"client{number}", offers) for number in range(16)]
    links = [session.sender() for session in sessions]
    for link in links:
        link.send(b"1", bytes(MESSAGE))
    run(*sessions)
    assert [session.sizes for session in sessions] == [[MESSAGE]] * 16
    assert budget.held == 0


def test_who_does_not_complete_its_message_is_passed_over_after_a_time() -> None:
    budget = Budget(8 * FRAME)
    first, second = object(), object()
    budget.add_partial(8 * FRAME)
    assert budget.may_finish(first, FRAME, 0.0)
    assert not budget.may_finish(second, FRAME, 1.0)
    assert budget.may_finish(first, 2 * FRAME, FINISHER_PATIENCE_S - 1)
    assert not budget.may_finish(second, FRAME, FINISHER_PATIENCE_S + 1)
    assert budget.may_finish(second, FRAME, 2 * FINISHER_PATIENCE_S)
    assert not budget.may_finish(first, 2 * FRAME, 2 * FINISHER_PATIENCE_S)
    budget.leave(second)
    assert budget.is_passed_on
    assert budget.may_finish(first, 2 * FRAME, 2 * FINISHER_PATIENCE_S + 1)


def test_nobody_goes_on_over_the_limit_where_complete_messages_fill_the_router() -> None:
    budget = Budget(8 * FRAME)
    budget.add(budget.body_limit)
    budget.add_partial(FRAME)
    assert not budget.may_finish("somebody", FRAME, 0.0)
    budget.add(-1)
    assert budget.may_finish("somebody", FRAME, 1.0)


def test_room_that_incomplete_messages_leave_is_reported_to_who_waits_for_it() -> None:
    budget = Budget(4 * MESSAGE)
    session = Session(WindowLimits(16 * MESSAGE, FRAME, MESSAGE), budget)
    link = session.sender()
    link.send(b"1", bytes(MESSAGE))
    session.step()
    session.step()
    budget.add(budget.body_room)
    assert not budget.body_room  # somebody was turned down
    assert session.server.sessions[0].partial_bytes
    session.server.sessions[0].links[0].detach(False)
    session.step()
    assert session.is_woken


def test_a_window_that_closes_before_the_room_is_gone_is_opened_again() -> None:
    """A session is offered a quarter of what is left: less than four frames is nothing."""
    budget = Budget(64 * FRAME)
    session = Session(WindowLimits(16 * MESSAGE, FRAME, MESSAGE), budget)
    budget.add(budget.body_room - 3 * FRAME)
    session.sender()
    server = session.server.sessions[0]
    session.windows.update({server: Stored(FRAME, 1)}, budget, session.offers, 0.0)
    assert session.windows.is_narrow(server)
    assert server.offered_frames == FIRST_WINDOW, "no more than it had before"
    assert budget.was_full
    assert not budget.has_room_again()
    budget.add(-4 * FRAME)
    assert budget.has_room_again()


def test_offers_and_what_is_held_stay_within_the_budget_but_for_what_every_session_is_offered() -> None:
    """Each of 40 sessions was offered a quarter of what was left, and they held eight times the budget."""
    budget, offers = Budget(64 * MESSAGE), Offers()
    limits = WindowLimits(16 * MESSAGE, FRAME, MESSAGE)
    sessions = [Session(limits, budget, f"client{number}", offers) for number in range(40)]
    stored = dict.fromkeys(sessions, 0)

    def look() -> None:
        for session in sessions:
            server = session.server.sessions[0]
            session.windows.update({server: Stored(stored[session], 1)}, budget, offers, 0.0)
        assert budget.held + offers.size <= budget.body_limit + 40 * IDLE_BYTES

    for session in sessions:
        session.sender()
    look()
    assert offers.size == 40 * IDLE_BYTES, "no session has sent anything"
    for _ in range(20):
        for session in sessions:  # it sends all that it may, and nothing is accepted
            server = session.server.sessions[0]
            came = server.offered_frames * FRAME
            server._incoming_left = 0
            stored[session] += came
            budget.add(came)
        look()
    assert budget.held > budget.body_limit - ROUTER_PART * FRAME, "the whole budget is used"
    for session in sessions:
        session.windows.close(budget, offers)
    assert offers.size == 0


def test_a_session_is_offered_more_while_it_sends_quickly_and_less_when_it_sends_slowly() -> None:
    session = Session(WindowLimits(2048 * KIB, FRAME, MESSAGE), Budget(1024 * MESSAGE))
    link = session.sender()
    assert session.window == IDLE_BYTES // FRAME
    for number in range(2048):
        link.send(b"%d" % number, b"x")
        session.step()
        link.settle([number])
    wide = session.window
    assert wide > 4 * IDLE_BYTES // KIB
    for number in range(2048, 3 * 2048):
        session.now += QUICK_S / 10
        link.send(b"%d" % number, b"x")
        session.step()
        link.settle([number])
    assert session.window <= IDLE_BYTES // KIB


# --- large messages ---------------------------------------------------------------------------------------------------


class Streaming(Session):
    """A session in which a large message comes, of which a test says what waits."""

    def __init__(self, limits: WindowLimits, budget: Budget) -> None:
        super().__init__(limits, budget)
        self.waiting = self.stored = 0
        self.is_awaited = False
        self.come = 0

    def stored_now(self) -> Stored:
        return Stored(self.stored + self.waiting, 1, self.is_awaited, self.waiting)

    def step(self) -> bool:
        for session in self.server.sessions:
            for link in session.links:
                if isinstance(link, ReceiverLink):
                    link.stream_above = FRAME
                    self.come = max(self.come, 0 if link.incoming is None else link.incoming[1])
        return super().step()


LARGE = WindowLimits(64 * STREAM_BYTES, FRAME, MESSAGE)


def begun(budget: Budget) -> Streaming:
    """A session whose client has begun a large message, and has more to send than will be taken."""
    session = Streaming(LARGE, budget)
    link = session.sender()
    link.begin(b"1", bytes(2 * FRAME))
    while not any(each.streamed for each in session.server.sessions):
        session.step()
    link.send_part(bytes(4 * STREAM_BYTES))
    return session


def test_a_session_that_sends_a_large_message_is_offered_no_more_than_is_soon_taken() -> None:
    session = begun(Budget(1 << 40))
    session.waiting = STREAM_BYTES - 3 * FRAME
    for _ in range(50):
        session.step()
    assert session.window <= 3
    assert not session.windows.is_narrow(session.server.sessions[0])
    session.waiting = STREAM_BYTES
    run(session)
    assert session.window == 0
    assert session.windows.is_narrow(session.server.sessions[0])
    come = session.come
    session.waiting = 0
    for _ in range(50):
        session.step()
    assert session.come > come


def test_what_is_sent_again_waits_behind_a_large_message_that_is_not_taken() -> None:
    """F1 offers a frame at a time to whoever has deliveries of its map to send again, but not beyond this."""
    session = begun(Budget(1 << 40))
    session.waiting, session.is_awaited = STREAM_BYTES, True
    run(session)
    assert session.window == 0


def test_a_large_message_goes_on_where_others_fill_the_router() -> None:
    """L-3: its subscribers get nothing else before its end, and what fills the router may wait for them."""
    budget = Budget(64 * FRAME)
    session = begun(budget)
    budget.add(budget.body_limit)
    come = session.come
    for _ in range(200):
        session.step()
    assert session.come > come + 100 * FRAME
    session.waiting = 1
    run(session)
    assert session.window == 0


# --- clients that do not resume ---------------------------------------------------------------------------------------


class Stock(Session):
    """A client that loses what its session window holds back when it closes."""

    CREDIT = FIRST_CREDIT

    def __init__(self, limits: WindowLimits, budget: Budget, name: str = "stock", offers: Offers | None = None) -> None:
        super().__init__(limits, budget, name, offers)
        self.windows.resumes = False
        self.server.session_window = self.windows.first(budget)
        self.stored = 0

    def stored_now(self) -> Stored:
        return Stored(self.stored, 1)


DEFAULTS = WindowLimits(64 << 20, 1 << 20, 64 << 20)


def test_five_hundred_sessions_of_a_router_begin_with_a_window_for_their_first_credit() -> None:
    budget, offers = Budget(1 << 30), Offers()
    sessions = [Stock(DEFAULTS, budget, f"client{number}", offers) for number in range(500)]
    for session in sessions:
        session.sender()
        assert session.window == session.session.remote_begin.incoming_window == FIRST_CREDIT  # type: ignore[union-attr]
    run(*sessions)
    assert all(session.window == FIRST_CREDIT for session in sessions), "no flow that nobody asked for"


def test_a_router_that_is_nearly_full_lets_a_session_begin_with_its_share() -> None:
    budget = Budget(1 << 30)
    budget.add(budget.body_limit - ROUTER_PART * 10 * KIB)
    assert Stock(DEFAULTS, budget).server.session_window == 10
    budget.add(budget.body_room)
    assert Stock(DEFAULTS, budget).server.session_window == 1


def test_one_small_message_that_nobody_answers_shuts_no_session_however_small_its_bytes() -> None:
    for window_bytes in (4 * KIB, 64 * KIB, 1024 * KIB):
        for kind in (Session, Stock):
            session = kind(WindowLimits(window_bytes, 1 << 20, 64 << 20), Budget(1 << 30))
            session.sender()
            session.server.sessions[0]._incoming_left = 0
            server = session.server.sessions[0]
            session.windows.update({server: Stored(1, 2)}, session.budget, session.offers, 0.0)
            assert server.offered_frames > 0, (window_bytes, kind)


def test_who_holds_more_than_its_part_of_a_router_that_is_full_is_stopped_and_nobody_else() -> None:
    budget, offers = Budget(64 * MESSAGE), Offers()
    limits = WindowLimits(16 * MESSAGE, FRAME, MESSAGE)
    sessions = [Stock(limits, budget, f"client{number}", offers) for number in range(8)]
    for session in sessions:
        session.sender()
    budget.add(budget.limit + 1)
    part = budget.limit // len(sessions)
    sessions[0].stored, sessions[1].stored = part + 1, part
    run(*sessions)
    assert [bool(session.windows.stopped_for) for session in sessions] == [True] + 7 * [False]
    budget.add(-1)
    sessions[2].stored = part + 1
    run(sessions[2])
    assert not sessions[2].windows.stopped_for
    for session in sessions:
        session.windows.close(budget, offers)
    assert offers.publishing == 0
