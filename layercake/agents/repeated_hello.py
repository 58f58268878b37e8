"""A HELLO that says what the node's last one said: most nodes say the same for long."""

from __future__ import annotations

from dataclasses import dataclass

from layercake.fleet.store import Record, Session
from layercake.kraken.converge import NodeState
from layercake.kraken.planner import Planner
from layercake.kraken.wire import SIZE, STARTS, TELLS, ReplayGuard, tells


@dataclass(slots=True)
class RepeatedHello:
    """A HELLO that changed nothing, and all that this depended on: one with the same bytes changes
    nothing either, for as long as the rest is the same. `starts` and `tells` are its bytes but for
    number and tag, `says` is what DESIRED tells in answer. `busy` is None for a node that is not in
    sync yet; `server` is the one of the head's addresses that it came to."""

    record: Record
    session: Session
    planner: Planner
    machine: NodeState
    wanted: object
    running: object
    revisions: tuple[int, int, int]  # cfg, dsc, acked
    starts: bytes
    tells: bytes
    says: bytes
    guard: ReplayGuard
    busy: str | None
    server: int

    @classmethod
    def of(
        cls, record: Record, session: Session, data: bytes, guard: ReplayGuard, server: int
    ) -> RepeatedHello:
        """The HELLO `data` of a node as it is now."""
        goal = record.machine.goal
        layout = record.planner.layout
        state = int.from_bytes(data[TELLS][-16:], "big")
        said = (session.layout or layout).unpack(state)
        in_sync = record.value("run") == "SYNC"
        return cls(
            record,
            session,
            record.planner,
            record.machine,
            record.wanted,
            record.running,
            (record.cfg_revision, record.dsc_revision, record.acked),
            data[STARTS],
            data[TELLS],
            tells(record.cfg_revision, record.dsc_revision, layout.digest, goal.mask, goal.value),
            guard,
            said["busy"] if in_sync else None,
            server,
        )

    def says_the_same(self, data: bytes, server: int) -> bool:
        """Whether a datagram of this node says the same, and came to the same address."""
        return (
            len(data) == SIZE
            and data[STARTS] == self.starts
            and data[TELLS] == self.tells
            and self.server == server
        )

    def holds(self, record: Record | None) -> bool:
        """Whether everything is as it was."""
        return (
            self.record is record
            and record.machine is self.machine
            and record.session is self.session
            and record.planner is self.planner
            and record.wanted is self.wanted
            and record.running is self.running
            and (record.cfg_revision, record.dsc_revision, record.acked) == self.revisions
        )
