"""Several heads of a site: their certificates, the members of their store, the third vote, the
other heads' clocks, and the disk of the member that runs here."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from layercake.base.text import count_of
from layercake.check.finding import Finding, check, error, ok, warning
from layercake.check.site import Site
from layercake.heads import member
from layercake.heads.etcd import NO_SPACE, Etcd, MemberStatus
from layercake.heads.log import SharedLog
from layercake.heads.settings import read_seal, store_certificate_ends, store_endpoints, store_tls
from layercake.heads.standby import HeadSays, heads_of
from layercake.kraken.errors import LayercakeError

VOTES = 3
APART_S = 15.0
"""What a head says of its clock may be some seconds old."""
SOON_DAYS = 30.0
WRITES = 21
SLOW_S = 0.02
"""A write of the store that half of the time takes longer has changes wait; SSDs take 1 ms."""


@check("heads")
def heads(site: Site) -> list[Finding]:
    """Several heads: whether the key and the certificates of their store can be read and are good
    for a month, each member of the store answers and has room, there are three votes, the other
    heads' clocks are as this one, and the disk of the member on this machine writes in a few
    milliseconds. Its directory is written to for that."""
    settings = site.settings.heads
    if not settings.name:
        return [ok("this site has one head")]
    if not settings.store:
        hint = "`layercake heads begin` writes it"
        return [error("heads.store names no member of the store", hint)]
    seal = read_seal(site.data_dir)
    endpoints = store_endpoints(site.data_dir, settings)
    store = Etcd(endpoints, store_tls(site.data_dir, settings.store))

    async def query_store() -> tuple[list[MemberStatus], list[HeadSays], str]:
        try:
            statuses = await store.statuses()
            try:
                said = await heads_of(SharedLog(store, settings.prefix, seal))
            except LayercakeError as failed:
                return statuses, [], failed.message
            return statuses, said, ""
        finally:
            await store.close()

    members, said, trouble = asyncio.run(query_store())
    findings = [*_certificate(site), *_members(site, members, trouble)]
    findings += _clocks(said, site.machine.wall())
    directory = site.data_dir / member.STORE
    if directory.is_dir():
        findings += judge_disk(directory, fsync_times(directory))
    stores = count_of(len(members), "member")
    text = f"{count_of(len(said), 'head')} and {stores} of their store have answered"
    return findings or [ok(text)]


def _certificate(site: Site) -> list[Finding]:
    ends = store_certificate_ends(site.data_dir)
    days = (ends - site.machine.wall()) / 86400
    if not ends or days > SOON_DAYS:
        return []
    name = site.settings.heads.name
    hint = f"on the head that leads: `layercake heads remove {name}`, and invite it anew"
    if days > 0:
        return [warning(f"the certificate for the heads' store ends in {days:.0f} days", hint)]
    return [error("the certificate for the heads' store has ended", hint)]


def _members(site: Site, members: Sequence[MemberStatus], trouble: str) -> list[Finding]:
    findings = []
    own = (site.data_dir / member.FILE).exists()
    for one in members:
        if one.trouble:
            where = urlsplit(one.endpoint).hostname
            hint = f"`systemctl restart layercake-store` on {where}, if it runs there"
            kind = error if trouble else warning
            findings.append(kind(f"a member of the heads' store is down: {one.trouble}", hint))
        if NO_SPACE in one.alarms:
            text = f"the heads' store at {one.endpoint} is full: no head may change anything"
            findings.append(error(text, "a head makes room by itself, if one runs"))
    if trouble:
        hint = "it needs more than half of its members"
        findings.append(error(f"no head may change anything: {trouble}", hint))
    votes = sum(not one.learner for one in members)
    if own and votes < VOTES:
        text = f"the heads' store has {votes} of {VOTES} votes: the loss of one stops changes"
        findings.append(warning(text, "`layercake heads invite witness1 --witness`"))
    return findings


def _clocks(said: Sequence[HeadSays], now: float) -> list[Finding]:
    return [
        warning(
            f"the clock of {one.head} is {abs(one.at - now):.0f} s off from this machine's",
            f"`timedatectl set-ntp true` on {one.head}, and here",
        )
        for one in said
        if abs(one.at - now) > APART_S
    ]


def fsync_times(directory: Path) -> list[float]:
    """How long small writes to the disk of a directory take until they are on it, in seconds, as
    the store writes. Raises OSError."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(WRITES):
            began = time.monotonic()
            file.write(bytes(2048))
            file.flush()
            os.fdatasync(file.fileno())
            times.append(time.monotonic() - began)
    return sorted(times)


def judge_disk(directory: Path, times: Sequence[float]) -> list[Finding]:
    """What such times mean."""
    median = times[len(times) // 2]
    if median <= SLOW_S:
        return []
    text = f"the disk of {directory} takes {median * 1e3:.0f} ms for a write of the heads' store"
    return [warning(text, "put it on an SSD, and nothing else that writes much")]
