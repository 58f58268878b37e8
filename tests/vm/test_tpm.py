"""A node with a TPM, from power-on: who it is and what it has booted is recorded, and another
machine with its token is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.vm.conftest import BOOT_S, Site

pytestmark = pytest.mark.vm


def kinds(site: Site, since: float) -> list[str]:
    return [e["kind"] for e in site.head.history("n1") if e["at"] >= since]


def test_a_machine_with_another_tpm_is_refused_whatever_token_it_has(site: Site) -> None:
    head = site.head
    found: dict[str, Any] = head.api("GET", "/v1/nodes/n1/tpm")
    assert (
        found["tpm"]["quoted"]
        and not found["tpm"]["troubles"]
        and "swtpm" in found["tpm"]["issuer"]
    )
    own = {one["register"]: one["value"] for one in found["tpm"]["registers"]}
    recorded = {
        one["register"]: one["recorded"] for one in found["tpm"]["registers"] if one["wanted"]
    }
    assert recorded == {number: own[number] for number in (4, 7, 9)}
    texts = {(step["register"], step["text"]) for step in found["log"]}
    assert (7, "SecureBoot") in texts and any(
        register == 4 and "vmlinuz" in text for register, text in texts
    )
    head.apply(site.inventory(tpm="required"))
    site.tpms.use("other")
    start = time.time()
    head.cli("power", "cycle", "n1", "--yes")
    head.wait("it is refused", lambda: "tpm.refused" in kinds(site, start), BOOT_S)
    assert "node.joined" not in kinds(site, start)
    assert "its TPM is another one" in head.cli("node", "explain", "n1").stdout
    site.tpms.use("own")
    start = time.time()
    head.cli("power", "cycle", "n1", "--yes")
    head.wait("the node itself joins", lambda: "node.joined" in kinds(site, start), BOOT_S)
    head.wait_converged(BOOT_S)
    shown = head.api("GET", "/v1/nodes/n1/tpm")["tpm"]
    assert shown["quoted"] and not shown["troubles"]
    head.apply(site.inventory())
