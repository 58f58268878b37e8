"""What the boot service counts stands in its figures from the beginning."""

from __future__ import annotations

import re
from pathlib import Path

import pxe
from pxe.dhcp.outcome import Outcome
from pxe.dns import decision
from pxe.notes import COUNTED
from pxe.tftp_transfer import Phase

SOURCES = sorted(Path(pxe.__file__).parent.rglob("*.py"))


USED = re.compile(r'(?:counters\[|^_[A-Z]+ = )"([a-z0-9-]+\.[a-z0-9-]+)"', re.MULTILINE)


def test_all_that_is_counted_is_there_before_it_happens() -> None:
    found = {name for path in SOURCES for name in USED.findall(path.read_text())}
    assert len(found) > 20
    assert found <= set(COUNTED)


def test_each_outcome_has_its_counter() -> None:
    assert {f"dhcp.{one.value}" for one in Outcome} <= set(COUNTED)
    assert {f"dns.{one.value}" for one in decision.Outcome} <= set(COUNTED)
    ends = {f"tftp.{one.name.lower()}" for one in Phase} - {"tftp.running"}
    assert ends | {"tftp.broken"} <= set(COUNTED)
