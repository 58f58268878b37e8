"""Foreign clients agree with what the zone says: dig (BIND) and kdig (Knot), by UDP and TCP."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict

import pytest

from tests.dns.conftest import Serve

FORMS = (("dig",), ("dig", "+tcp"), ("kdig",), ("kdig", "+tcp"), ("kdig", "+edns", "+dnssec"))


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
async def test_every_name_of_the_zone_is_found(serve: Serve, form: tuple[str, ...]) -> None:
    assert shutil.which(form[0]), f"{form[0]} is missing: vm-testbed/packages.txt"
    served = serve(rate=0)
    expected: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in served.names.view("", ()).records:
        expected[row.name, row.type].add(row.data)
    assert len(expected) > 25
    for (name, kind), data in expected.items():
        out = await served.run(
            *form, "+short", f"@{served.settings.address}", "-p", str(served.port), f"{name}.", kind
        )
        assert {line.rstrip(".") for line in out.splitlines()} == data, (name, kind, out)


def whole(out: str) -> tuple[str, set[str]]:
    """Status and flags of an answer, in the words that both programs use."""
    status = out.partition("status: ")[2].partition(",")[0].partition(";")[0]
    return status, set(out.lower().partition("flags: ")[2].partition(";")[0].split())


@pytest.mark.parametrize(
    ("words", "status", "flags"),
    [
        (("n1.cluster.internal",), "NOERROR", {"qr", "aa", "rd", "ra"}),
        (("nosuch.cluster.internal",), "NXDOMAIN", {"qr", "aa", "rd", "ra"}),
        (("-x", "127.0.1.1"), "NOERROR", {"qr", "aa", "rd", "ra"}),
        (("-x", "127.0.1.77"), "NXDOMAIN", {"qr", "aa", "rd", "ra"}),
        (("-x", "fd99::5054:ff:fe00:101"), "NOERROR", {"qr", "aa", "rd", "ra"}),
        (("n1.cluster.internal", "TXT"), "NOERROR", {"qr", "aa", "rd", "ra"}),
        (("www.example.org", "+norec"), "REFUSED", {"qr", "ra"}),
        (("N1.CLUSTER.internal", "+cookie"), "NOERROR", {"qr", "aa", "rd", "ra"}),
        (("n1", "-c", "CH"), "REFUSED", {"qr", "rd", "ra"}),
    ],
)
async def test_dig_and_kdig_see_the_same(
    serve: Serve, words: tuple[str, ...], status: str, flags: set[str]
) -> None:
    served = serve(upstream=("127.0.0.9",))
    where = (f"@{served.settings.address}", "-p", str(served.port))
    outs = await asyncio.gather(
        *(served.run(program, *where, *words) for program in ("dig", "kdig"))
    )
    assert [whole(out) for out in outs] == [(status, flags)] * 2, outs
    assert all("malformed" not in out.lower() and "warning" not in out.lower() for out in outs), (
        outs
    )


async def test_an_answer_that_may_not_come_again_comes_by_tcp(serve: Serve) -> None:
    served = serve(rate=1, upstream=("127.0.0.9",))
    where = (
        f"@{served.settings.address}",
        "-p",
        str(served.port),
        "+tries=8",
        "+timeout=1",
        "+short",
        "n1",
    )
    outs = await asyncio.gather(*(served.run("dig", *where) for _ in range(6)))
    assert {out.strip().splitlines()[-1] for out in outs} == {"127.0.1.1"}
