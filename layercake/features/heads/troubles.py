"""What is wrong with the heads of a site and their store, in words for people, each with what
helps: what lasts, not what passes in a moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from layercake.heads.etcd import NO_SPACE, MemberStatus
from layercake.heads.site import HeadsShown
from layercake.heads.standby import HeadSays

LASTS_S = 6.0
"""Seconds after which what is wrong counts: a head that begins is soon well."""
COPIES_S = 120.0
"""So long a head may take to copy files; or to be upgraded, after the others."""
APART_S = 15.0
"""Seconds that clocks may be apart: what a head says of its own may be as old as SAID_S."""
BEHIND = 500
"""Entries that a follower may be behind, and for how many seconds."""
BEHIND_S = 10.0
SLOW_S = 0.064
"""A member of which one write in ten takes longer is late with what all wait for."""
SOON_S = 30 * 86400.0
"""A certificate that ends sooner is told of."""
VOTES = 3
"""With fewer the loss of one stops changes."""
KINDS = {
    "store": "no head may change anything: most members of the store do not answer",
    "full": "the store is full",
    "member": "a member of the store is down",
    "slow": "the disk of a member of the store is slow",
    "votes": "the store has fewer than three votes",
    "away": "a head is away",
    "head": "a head says that it is in trouble",
    "behind": "a follower is behind",
    "files": "a follower has not all files",
    "consoles": "a follower cannot copy the logs of consoles",
    "clock": "the clock of a head is far off",
    "version": "heads have different versions",
    "address": "a floating address cannot be had",
    "certificate": "a certificate for the store ends soon",
}
"""The kinds of trouble, and what they mean."""


class Trouble(NamedTuple):
    """What is wrong: its kind, the words, what helps, and after how many seconds it counts. What
    is the same but for the words is the same."""

    kind: str
    text: str
    helps: str
    lasts_s: float = LASTS_S

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from others."""
        return self.kind, self.helps

    @property
    def line(self) -> str:
        """What is told of it."""
        return f"{self.text}: {self.helps}"


def troubles_of(shown: HeadsShown, known: Collection[str], now: float) -> Iterator[Trouble]:
    """What is wrong at this moment; `known` are the heads that there should be, `now` is this
    head's clock, seconds since the epoch."""
    if shown.trouble:
        text = f"no head may change anything: {shown.trouble}"
        yield Trouble("store", text, f"start the members again, {_restart(shown, 'each machine')}")
    full = any(NO_SPACE in one.alarms for one in shown.members)
    for member in shown.members:
        yield from _of_member(member, shown, now)
    yield from _of_votes(shown)
    there = {one.head: one for one in shown.heads}
    for name in sorted({*known} - there.keys() if not (shown.trouble or full) else ()):
        helps = f"`systemctl start layercake` on it; `layercake heads remove {name}` if it is gone"
        yield Trouble("away", f"{name} is away: it cannot take over", helps)
    leader = there.get(shown.leader)
    for one in shown.heads:
        yield from _of_head(one, leader, shown, now, full=full)


def _of_votes(shown: HeadsShown) -> Iterator[Trouble]:
    votes = sum(not one.learner for one in shown.members)
    if shown.own_store and not shown.trouble and votes < VOTES:
        text = f"the heads' store has {votes} of {VOTES} votes: the loss of one stops changes"
        yield Trouble("votes", text, "`layercake heads invite witness1 --witness`", COPIES_S)


def _restart(shown: HeadsShown, where: str) -> str:
    if shown.own_store:
        return f"`systemctl restart layercake-store` on {where}"
    return f"`etcdctl endpoint health` at the site's etcd, on {where}"


def _of_member(member: MemberStatus, shown: HeadsShown, now: float) -> Iterator[Trouble]:
    where = urlsplit(member.endpoint).hostname or member.endpoint
    if member.trouble:
        text = f"a member of the heads' store is down: {member.trouble}"
        yield Trouble("member", text, _restart(shown, where))
    if NO_SPACE in member.alarms:
        text = f"the heads' store at {where} is full ({NO_SPACE}): no head may change anything"
        helps = "a head makes room by itself, once a minute; if that does not help, a higher quota"
        yield Trouble("full", text, f"{helps}: `etcd --quota-backend-bytes`")
    for alarm in member.alarms:
        if alarm != NO_SPACE:
            text = f"the heads' store at {where} has the alarm {alarm}"
            helps = "take its head out and in again, `layercake heads remove HEAD`"
            yield Trouble("member", text, helps)
    if member.fsync_s > SLOW_S:
        text = f"the disk of the heads' store at {where} is slow: changes wait for it"
        yield Trouble("slow", text, "`layercake check --only heads` there measures it")
    if 0.0 < member.certificate_ends < now + SOON_S:
        text = f"the certificate of the heads' store at {where} ends soon"
        yield Trouble("certificate", text, _renew(shown, "HEAD"))


def _renew(shown: HeadsShown, head: str) -> str:
    if shown.own_store:
        return f"`layercake heads remove {head}`, and `layercake heads invite {head}` anew"
    return "a new one of the site's etcd"


def _of_head(
    one: HeadSays, leader: HeadSays | None, shown: HeadsShown, now: float, *, full: bool
) -> Iterator[Trouble]:
    log = f"`journalctl -u layercake` on {one.head}"
    if one.trouble:
        yield Trouble("head", f"{one.head}: {one.trouble}", log)
    if shown.entry - one.entry > BEHIND or one.behind_s > BEHIND_S:
        yield Trouble("behind", f"{one.head} is far behind the leader", log)
    yield from _of_copies(one, shown, log)
    if abs(one.at - now) > APART_S and not full:  # in a full store it says nothing new
        text = f"the clock of {one.head} is far off"
        yield Trouble("clock", text, f"`timedatectl set-ntp true` on {one.head}")
    if leader is not None and one.version != leader.version:
        text = f"{one.head} has version {one.version}, {leader.head}, which leads, {leader.version}"
        older = min(one, leader, key=lambda head: _numbers(head.version)).head
        helps = f"`apt install --only-upgrade layercake` on {older}"
        yield Trouble("version", text, helps, COPIES_S)
    if 0.0 < one.certificate_ends < now + SOON_S:
        text = f"the certificate of {one.head} for the heads' store ends soon"
        yield Trouble("certificate", text, _renew(shown, one.head))


def _of_copies(one: HeadSays, shown: HeadsShown, log: str) -> Iterator[Trouble]:
    if one.files != shown.files and not shown.trouble:
        lacks = "leads without all files" if one.leads else "has not all files: others lead first"
        yield Trouble("files", f"{one.head} {lacks}", log, COPIES_S)
    if one.consoles:
        text = f"{one.head} does not copy the logs of consoles: {one.consoles}"
        yield Trouble("consoles", text, log, COPIES_S)


def _numbers(version: str) -> list[int]:
    return [int("".join(c for c in part if c.isdigit()) or 0) for part in version.split(".")]


class Troubles:
    """What has been wrong for a while. `clock` is steady, `changed` is told when what lasts is
    other than before, with what it is now."""

    def __init__(
        self, clock: Callable[[], float], changed: Callable[[Sequence[Trouble]], None]
    ) -> None:
        self._clock = clock
        self._changed = changed
        self._since: dict[tuple[str, str], float] = {}
        self.lasting: list[Trouble] = []

    def update(self, now: Collection[Trouble]) -> None:
        """This is wrong now."""
        at = self._clock()
        self._since = {one.key: self._since.get(one.key, at) for one in now}
        before = [one.key for one in self.lasting]
        self.lasting = [one for one in now if at - self._since[one.key] >= one.lasts_s]
        if [one.key for one in self.lasting] != before:
            self._changed(self.lasting)


def roles(shown: HeadsShown, known: Collection[str]) -> list[str]:
    """What each head is, in a few words, the one that leads first."""
    words = [(not one.leads, one.head, f"{one.head} {_role(one, shown)}") for one in shown.heads]
    there = {one.head for one in shown.heads}
    away = "cannot be seen" if shown.trouble else "is away"
    others = [(True, name, f"{name} {away}") for name in {*known} - there]
    return [text for *_, text in sorted([*words, *others])]


def _role(one: HeadSays, shown: HeadsShown) -> str:
    if one.leads:
        return "leads"
    lacks = shown.entry - one.entry
    behind = f", {lacks} entries behind" if lacks > BEHIND else ""
    files = ", without all files" if one.files != shown.files else ""
    retired = ", retired" if one.head in shown.retired else ""
    ready = "" if one.ready else ", getting ready"
    return f"follows{behind}{files}{retired}{ready}"
