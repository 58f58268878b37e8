"""Who may take over when a person says so: not a head that lacks files, as nobody would lead then,
and none that was removed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from layercake.features.heads.membership import Membership, check_others_lead
from layercake.features.heads.operations import check_able
from layercake.features.heads.register import FILE, Entry, Members, Register
from layercake.fleet.store import Store
from layercake.heads.etcd import StoreAway
from layercake.heads.site import HeadsShown
from layercake.heads.standby import HeadSays
from layercake.kraken.errors import NotFound, Refused
from tests.support.clock import FakeClock

ONE = HeadSays("head1", "", "0.3.1", True, 7, "", 1e9, files="all")
TWO = HeadSays("head2", "", "0.3.1", False, 7, "", 1e9, files="all")
SHOWN = HeadsShown("head1", "head1", 3, 7, [ONE, TWO], [], files="all")
SOME = msgspec.structs.replace(SHOWN, heads=[ONE, msgspec.structs.replace(TWO, files="some")])


class FakeSite:
    """The heads of a site whose store does not answer at first."""

    name = "head1"
    files = SimpleNamespace(lacks=False)

    def __init__(self) -> None:
        self.away = True
        self.retired: list[str] = []

    async def retire(self, head: str, *, retired: bool) -> None:
        if self.away:
            raise StoreAway("no answer")
        assert retired
        self.retired.append(head)


async def test_a_removal_can_be_repeated_and_who_was_removed_leads_no_more(tmp_path: Path) -> None:
    """Over an etcd of the site's own: a head that still runs can reach it."""
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text('{"members": {"head1": {}, "head2": {}}}')
    site = FakeSite()
    removed: list[str] = []
    nothing = cast(Any, None)
    membership = Membership(
        tmp_path, cast(Any, site), Store(FakeClock()), nothing, nothing, "", removed.append
    )
    with pytest.raises(StoreAway):
        await membership.remove("head2", "somebody")
    site.away = False
    await membership.remove("head2", "somebody")
    assert site.retired == removed == ["head2"]
    assert Register(tmp_path).read() == Members({"head1": Entry()})


def test_a_head_that_lacks_files_is_not_promoted() -> None:
    check_able(SHOWN, "head2", lacks=False)
    with pytest.raises(Refused, match="cannot have head2 lead: it has not all files"):
        check_able(SOME, "head2", lacks=False)
    check_able(SOME, "head2", lacks=True)
    with pytest.raises(Refused, match="cannot have head1 lead: it does"):
        check_able(SHOWN, "head1", lacks=False)
    with pytest.raises(NotFound, match="there are head1, head2"):
        check_able(SHOWN, "head3", lacks=False)


def test_a_leader_retires_only_if_another_head_has_all_files() -> None:
    check_others_lead(SHOWN, "head1")
    with pytest.raises(Refused, match="cannot retire head1: it leads, and no other head has all"):
        check_others_lead(SOME, "head1")
    check_others_lead(SOME, "head2")
    retired = msgspec.structs.replace(SHOWN, retired=["head2"])
    with pytest.raises(Refused, match="no other head is there that may lead"):
        check_others_lead(retired, "head1")
