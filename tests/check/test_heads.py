"""What `layercake check` finds of several heads: a real etcd, whole and with members that are down;
certificates, clocks, votes, the disk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from layercake.agents.pki import Authority, create_authority
from layercake.base.files import write_json
from layercake.check.finding import Finding, Severity
from layercake.check.heads import fsync_times, heads, judge_disk
from layercake.check.machine import Machine
from layercake.check.site import Site
from layercake.check.table import run_checks
from layercake.heads import member
from layercake.heads.etcd import Etcd
from layercake.heads.log import Seal, SharedLog
from layercake.heads.settings import DIRECTORY, ENDPOINTS, KEY, HeadsSettings
from layercake.heads.standby import HeadSays
from tests.check.made import made, worst
from tests.support.etcd import EtcdMembers, etcd_members

NOW = 1_700_000_000.0


THEN = Machine(wall=lambda: NOW)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    with etcd_members(tmp_path_factory.mktemp("etcd")) as found:
        yield found


def site_with(directory: Path, *store: str) -> Site:
    """A site whose head is one of several."""
    (directory / DIRECTORY).mkdir(exist_ok=True)
    (directory / DIRECTORY / KEY).write_bytes(bytes(32))
    site = made(directory, machine=THEN)
    settings = msgspec.structs.replace(
        site.settings, heads=HeadsSettings("head1", list(store), f"/{directory.name}/")
    )
    return made(directory, machine=THEN, settings=settings)


@pytest.fixture
async def shared(members: EtcdMembers, tmp_path: Path) -> AsyncIterator[SharedLog]:
    store = Etcd(members.endpoints)
    yield SharedLog(store, f"/{tmp_path.name}/", Seal(bytes(32)))
    await store.close()


async def publish_head(shared: SharedLog, name: str, at: float) -> None:
    said = HeadSays(name, "", "0.3.0", False, 1, "", at)
    await shared.publish(name, msgspec.json.encode(said), 0)


def findings_of(site: Site) -> list[Finding]:
    return [result.finding for result in run_checks(site, [heads])]


def test_a_site_with_one_head_has_nothing_to_be_looked_at(tmp_path: Path) -> None:
    assert [one.severity for one in heads.look(made(tmp_path))] == [Severity.OK]


def test_heads_that_are_well(members: EtcdMembers, tmp_path: Path) -> None:
    assert worst(findings_of(site_with(tmp_path, *members.endpoints))) is Severity.OK


def test_settings_without_a_member_and_a_key_that_is_missing(tmp_path: Path) -> None:
    (finding,) = findings_of(site_with(tmp_path))
    assert finding.severity is Severity.ERROR and "no member" in finding.text
    site = site_with(tmp_path, "http://127.0.0.1:1")
    (tmp_path / DIRECTORY / KEY).unlink()
    (finding,) = findings_of(site)
    assert finding.severity is Severity.ERROR and KEY in finding.text and finding.hint


@pytest.mark.parametrize(
    ("days", "later_s", "severity"),
    [(3650.0, 0.0, None), (20.0, 0.0, Severity.WARNING), (20.0, 30 * 86400.0, Severity.ERROR)],
    ids=["good", "soon", "ended"],
)
def test_certificates_that_cannot_be_read_and_that_end(
    tmp_path: Path, days: float, later_s: float, severity: Severity | None
) -> None:
    site = site_with(tmp_path, "https://127.0.0.1:1")
    site = replace(site, machine=Machine(wall=lambda: time.time() + later_s))
    (finding,) = findings_of(site)
    assert finding.severity is Severity.ERROR and "certificates" in finding.text
    create_authority(tmp_path / "store-ca")
    authority = Authority(tmp_path / "store-ca", days)
    issued = authority.issue_head("127.0.0.1")
    for name, text in (
        ("store-ca.pem", authority.trusted.read_text()),
        ("store.pem", issued["cert"]),
        ("store.key", issued["key"]),
    ):
        (tmp_path / DIRECTORY / name).write_text(text)
    found = [one for one in findings_of(site) if "certificate" in one.text]
    assert [one.severity for one in found] == ([] if severity is None else [severity])


@pytest.mark.parametrize("down", [1, 2])
def test_members_that_are_down(tmp_path: Path, members: EtcdMembers, down: int) -> None:
    site = site_with(tmp_path, *members.endpoints)
    members.kill(*range(down))
    try:
        if down == 1:
            members.wait(1, 2)
        found = findings_of(site)
    finally:
        members.start_missing()
    lost = down == 2
    assert worst(found) is (Severity.ERROR if lost else Severity.WARNING)
    assert sum("is down" in one.text for one in found) == down
    assert any("no head may change anything" in one.text for one in found) is lost


def test_the_third_vote_is_missed_where_the_store_is_the_heads_own(
    tmp_path: Path, members: EtcdMembers
) -> None:
    first, second, third = members.endpoints
    site = site_with(tmp_path, first)
    assert worst(findings_of(site)) is Severity.OK, "an etcd of the site's own"
    (tmp_path / member.FILE).write_text("{}")
    write_json(tmp_path / ENDPOINTS, [first, second])
    (finding,) = findings_of(site)
    assert finding.severity is Severity.WARNING and "2 of 3 votes" in finding.text
    assert "--witness" in finding.hint
    write_json(tmp_path / ENDPOINTS, [first, second, third])
    assert worst(findings_of(site)) is Severity.OK


async def test_clocks_that_are_apart(
    tmp_path: Path, members: EtcdMembers, shared: SharedLog
) -> None:
    site = site_with(tmp_path, *members.endpoints)
    await publish_head(shared, "head1", NOW)
    await publish_head(shared, "head2", NOW - 90.0)
    (finding,) = await in_thread(site)
    assert "the clock of head2 is 90 s off" in finding.text
    await publish_head(shared, "head2", NOW + 3.0)
    (finding,) = await in_thread(site)
    assert finding.severity is Severity.OK and finding.text.startswith("2 heads")


async def in_thread(site: Site) -> list[Finding]:
    """As `run_checks` does: checks have no event loop around them."""
    return await asyncio.to_thread(findings_of, site)


def test_a_disk_is_judged_by_the_median_of_small_writes(tmp_path: Path) -> None:
    times = fsync_times(tmp_path)
    assert times == sorted(times) and times[0] > 0.0 and list(tmp_path.iterdir()) == []
    assert judge_disk(tmp_path, [0.001] * 11 + [1.0] * 10) == []
    (finding,) = judge_disk(tmp_path, [0.001] * 10 + [0.05] * 11)
    assert finding.severity is Severity.WARNING and "takes 50 ms" in finding.text
