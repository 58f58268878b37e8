"""A pretended cluster for the pure roll core, under a fake clock: nodes stage, switch, break, go
away and are BUSY by script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from layercake.features.rolls import decide
from layercake.features.rolls.facts import (
    ENDED,
    Action,
    NodeFacts,
    NodePhase,
    NodeRoll,
    Note,
    Phase,
    Plan,
    Revert,
    Roll,
    Stage,
    Switch,
    Unstage,
    counted,
)
from layercake.fleet.store import WantedImage

OLD = (WantedImage("app", "blake2b:" + "0" * 64, 1, {}),)
NEW = (WantedImage("app", "blake2b:" + "1" * 64, 1, {}),)
DOWN = (NodePhase.SWITCHING, NodePhase.RETURNING)


@dataclass
class Member:
    """One node's script, times in seconds. `bad` is how the new image ends there: "", "at once"
    (ERROR) or "later" (watched). Its health check passes `healthy_s` after the switch.
    """

    stage_s: float = 1.0
    stage_failures: int = 0
    switch_s: float = 0.5
    bad: str = ""
    busy: tuple[float, float] = (0.0, 0.0)
    away: tuple[float, float] = (0.0, 0.0)
    boots_when_away: bool = False
    healthy_s: float = 0.0
    # how it is
    wants_new: bool = False
    runs_new: bool = False
    since: float = 0.0
    settled: bool = True
    staging: float | None = None
    staged: bool = False
    stage_error: str = ""
    switches: int = 0


@dataclass
class Cluster:
    """The nodes, the roll over them, and what the roll did. `lossy` drops the actions of a step, as
    a killed head would."""

    members: dict[str, Member]
    plan: Plan
    stages: dict[str, int] = field(default_factory=dict)
    now: float = 1000.0
    notes: list[str] = field(default_factory=list)
    most_down: int = 0
    switched_before_staged: bool = False
    most_sound_down: int = 0

    def __post_init__(self) -> None:
        names = tuple(f"stage{i}" for i in range(1 + max(self.stages.values(), default=0)))
        nodes = {
            k: NodeRoll(name=k, stage=self.stages.get(k, 0), target=1, before=0)
            for k in self.members
        }
        self.roll = Roll(1, "a person", self.now, "app", self.plan, names, (OLD, NEW), nodes)

    def facts(self, key: str) -> NodeFacts:
        member = self.members[key]
        sync = not member.away[0] <= self.now - 1000.0 < member.away[1]
        image = "ACTIVE"
        if not member.settled:
            image = "UPDATE"
        elif member.runs_new and member.bad == "at once":
            image = "ERROR"
        elif member.runs_new and member.bad == "later" and self.now - member.since >= 1.0:
            image = "FATAL"
        return NodeFacts(
            unproven=member.healthy_s > 0
            and member.runs_new
            and self.now - member.since < member.healthy_s,
            sync=sync,
            busy=self.is_busy(member),
            image=image,
            target=member.wants_new,
            before=not member.wants_new,
            staged=member.staged,
            stage_error=member.stage_error,
        )

    def is_busy(self, member: Member) -> bool:
        return member.busy[0] <= self.now - 1000.0 < member.busy[1]

    def step(self, *, lossy: bool = False) -> None:
        """The head looks at all nodes and does what the roll asks for."""
        before = self.roll
        self.roll, actions = decide.step(
            self.roll, {k: self.facts(k) for k in self.members}, self.now
        )
        self.observe(before)
        self.obey(() if lossy else actions)

    def observe(self, before: Roll) -> None:
        states = [n.state for n in self.roll.nodes.values()]
        all_of, here = (
            list(self.roll.nodes.values()),
            [n for n in self.roll.nodes.values() if n.batch == self.roll.batch > 0],
        )
        for carried, counts in (
            (self.roll.stands, counted(all_of)),
            (self.roll.here, counted(here)),
        ):
            assert {k: n for k, n in carried.items() if n} in ({}, counts), (
                "what is carried along is true"
            )
        assert all(
            n.deadline is None or n.deadline >= self.roll.wake for n in self.roll.nodes.values()
        )
        self.most_down = max(self.most_down, states.count(NodePhase.SWITCHING))
        sound = [n for n in self.roll.nodes.values() if n.state in DOWN and not n.broken]
        self.most_sound_down = max(self.most_sound_down, len(sound))
        if before.state is Phase.STAGING and NodePhase.SWITCHING in states:
            waits = [
                n
                for n in self.roll.nodes.values()
                if n.state is NodePhase.STAGING or (n.state is NodePhase.WAITING and not n.absent)
            ]
            self.switched_before_staged |= bool(waits)

    def obey(self, actions: tuple[Action, ...]) -> None:
        for action in actions:
            if isinstance(action, Note):
                self.notes.append(action.kind.name)
                continue
            member = self.members[action.node]
            if isinstance(action, Stage):
                member.staging, member.stage_error = self.now + member.stage_s, ""
            elif isinstance(action, Unstage):
                member.staging, member.staged = None, False
            else:
                self.want(member, isinstance(action, Switch))
                if isinstance(action, Revert) and action.keep:
                    member.staged = True

    def want(self, member: Member, new: bool) -> None:
        if member.wants_new != new:
            member.wants_new, member.since = new, self.now
            member.settled = member.runs_new == new
            member.switches += 1

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for member in self.members.values():
            away = member.away[0] <= self.now - 1000.0 < member.away[1]
            if away:
                if member.boots_when_away:
                    member.staged = False
                    member.staging = None
                    member.runs_new = member.wants_new
                    member.settled = True
                continue
            if member.staging is not None and member.staging <= self.now:
                member.staging = None
                if member.stage_failures > 0:
                    member.stage_failures, member.stage_error = (
                        member.stage_failures - 1,
                        "no space",
                    )
                else:
                    member.staged = True
            if (
                not member.settled
                and not self.is_busy(member)
                and self.now - member.since >= member.switch_s
            ):
                member.settled, member.runs_new, member.since = True, member.wants_new, self.now

    def run(
        self, limit: float = 20_000.0, pace: float = 0.5, until: Callable[[], bool] = lambda: False
    ) -> None:
        """Runs until the roll is over or paused, `until` is true, or `limit` seconds have
        passed."""
        end = self.now + limit
        self.step()
        while (
            not self.roll.over
            and self.roll.state is not Phase.PAUSED
            and not until()
            and self.now < end
        ):
            self.pass_time(pace)
            self.step()

    def stands(self) -> dict[str, str]:
        return {k: n.state.value for k, n in self.roll.nodes.items()}

    def new(self) -> set[str]:
        return {k for k, m in self.members.items() if m.wants_new}

    def unended(self) -> list[str]:
        return [k for k, n in self.roll.nodes.items() if n.state not in ENDED]
