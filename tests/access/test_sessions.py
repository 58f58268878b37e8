"""Sessions of browsers and tickets: whose, how many, and until when."""

from __future__ import annotations

from layercake.api.caller import Caller
from layercake.features.access import sessions
from layercake.features.access.sessions import Sessions
from layercake.moduleapi.module import Role


def test_sessions_and_tickets_are_so_many_of_one_caller_and_in_all() -> None:
    ended: list[str] = []
    found = Sessions(lambda: 1000.0, ended.append)
    eve, ann = (Caller(name, "token", Role.VIEWER, token=name) for name in ("eve", "ann"))
    first, _ = found.begin(ann)
    for _ in range(sessions.EACH + 10):
        found.begin(eve)
    assert len(ended) == 10 and found.find(first) is not None, "who opens too many loses his own"
    tickets = [found.ticket(eve) for _ in range(sessions.TICKETS_EACH + 1)]
    assert (
        found.redeem(tickets[0]) is None
        and found.redeem(tickets[-1]) is not None
        and found.redeem(tickets[-1]) is None
    )


def test_a_session_is_never_longer_than_what_it_was_traded_for_and_has_no_exec() -> None:
    now = [1000.0]
    found = Sessions(lambda: now[0])
    text, caller = found.begin(
        Caller("ann", "token", Role.ADMIN, None, True, token="t", expires=1010.0)
    )
    assert (caller.exec, caller.expires, bool(caller.session)) == (False, 1010.0, True)
    assert text not in repr(found.find(text))
    ticket = found.ticket(caller)
    again, second = found.begin(found.redeem(ticket) or caller)
    assert second.expires == 1010.0 and again != text, (
        "a ticket out of a session is not longer than that"
    )
    now[0] = 1010.0
    assert found.find(text) is None and found.find(again) is None
