"""What is made of a TPM that was shown: what is recorded, what is refused."""

from __future__ import annotations

import msgspec
import pytest

from layercake.features.tpm.judging import MOST_SETS, judge
from layercake.features.tpm.module import TpmPart, complete
from layercake.features.tpm.table import Known, Shown
from layercake.moduleapi.fields import Mistake

RECORDED, REQUIRED, NEW = TpmPart(tpm="recorded"), TpmPart(tpm="required"), Known(node="n")


def shown(ek: str = "aa", boot: str = "one", **registers: str) -> Shown:
    return Shown(
        ek=ek,
        ak="ak",
        boot=boot,
        registers={4: "k1", 7: "s", 9: "g"} | {int(k[1:]): v for k, v in registers.items()},
    )


def known(*boots: str) -> Known:
    found = NEW
    for boot in boots:
        found = judge(RECORDED, found, shown(boot=boot), boot, "").known
    return found


def test_the_first_is_recorded_and_the_same_one_is_nothing_new() -> None:
    verdict = judge(RECORDED, NEW, shown(), "one", "")
    assert verdict.known.ek == "aa" and verdict.known.expected == {"one": {4: "k1"}, "": {7: "s"}}
    assert verdict.new == "TPM aa and registers 4, 7 with boot set one" and not verdict.troubles
    again = judge(REQUIRED, verdict.known, shown(), "one", "")
    assert not again.new and not again.troubles and again.known == verdict.known


def test_required_wants_one_that_a_person_has_taken_in() -> None:
    verdict = judge(REQUIRED, NEW, shown(), "one", "")
    assert verdict.unknown and verdict.troubles and verdict.known == NEW
    assert not judge(REQUIRED, NEW, shown(), "one", "aa").troubles
    assert judge(REQUIRED, NEW, shown(), "one", "bb").unknown


def test_another_boot_set_has_other_values_and_the_firmwares_stay() -> None:
    verdict = judge(REQUIRED, known("one"), shown(boot="two", r4="k2"), "two", "")
    assert not verdict.troubles and verdict.known.expected["two"] == {4: "k2"}
    assert judge(
        REQUIRED, known("one"), shown(boot="two", r4="k2", r7="x"), "two", ""
    ).registers == (7,)
    not_ordered = judge(REQUIRED, known("one"), shown(boot="two", r4="k2"), "one", "")
    assert "was to boot one" in not_ordered.troubles[0] and not not_ordered.unknown
    older = judge(REQUIRED, known("two", "one"), shown(boot="two"), "one", "")
    assert "was to boot one" in older.troubles[0], "one that was booted before"
    assert not judge(REQUIRED, known("two", "one"), shown(boot="two"), "two", "").troubles
    firmware_only = TpmPart(tpm="required", tpm_registers=(7,))
    assert not judge(firmware_only, known("one"), shown(boot="two"), "one", "").troubles
    many = known(*(f"set-{n}" for n in range(9)))
    assert [name for name in many.expected if name] == [
        f"set-{n}" for n in range(9 - MOST_SETS, 9)
    ] and many.expected[""]


@pytest.mark.parametrize(
    ("window", "resets", "fine"),
    [
        ("b", 6, True),
        ("b", 5, False),
        ("b", 4, False),
        ("a", 5, True),
        ("a", 6, True),
        ("a", 4, False),
    ],
)
def test_each_boot_begins_with_a_reset_of_the_tpm(window: str, resets: int, fine: bool) -> None:
    first = msgspec.structs.replace(shown(), window="a", resets=5)
    before = judge(RECORDED, NEW, first, "one", "").known
    assert (before.window, before.resets) == ("a", 5)
    now = msgspec.structs.replace(shown(), window=window, resets=resets)
    verdict = judge(REQUIRED, before, now, "one", "")
    assert (not verdict.troubles) is fine
    assert verdict.known == before or fine, "what was not believed counts for nothing"


def test_what_has_no_trusted_certificate_is_not_recorded() -> None:
    odd = Shown(ek="aa", ak="ak", boot="one", untrusted="it has no certificate of its maker's")
    verdict = judge(RECORDED, NEW, odd, "one", "")
    assert not verdict.known.ek and "no certificate" in verdict.troubles[0]
    assert not judge(RECORDED, NEW, shown(), "one", "").troubles
    assert not judge(
        TpmPart(tpm="required", tpm_registers=()), known("one"), odd, "one", ""
    ).troubles, "it was recorded"


def test_secrets_for_quoted_nodes_need_a_tpm_that_is_asked() -> None:
    with pytest.raises(Mistake, match="no TPM is asked"):
        complete({"secrets": "quoted"})
    assert complete({"secrets": "quoted", "tpm": "recorded"})
