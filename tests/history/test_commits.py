"""Each change of the inventory is a commit: who, what, why, how, by which token and from where."""

from __future__ import annotations

import pytest

from tests.history.conftest import Site

RACK = """
networks: {{far: {{subnet: 10.20.0.0/24, gateway: 10.20.0.1}}}}
groups: {{a: {{domain: true}}, b: {{}}}}
nodes:
  n0: {{mac: "52:54:00:00:00:10", ip: 10.20.0.10, groups: [a], kernel_args: "{args}",
       bmc: {{driver: redfish, address: 10.9.0.1, username: root, password: {{file: {secrets}/bmc}}}}}}
  n1: {{mac: "52:54:00:00:00:11", ip: 10.20.0.11, groups: [b]}}
"""


def rack(site: Site, arguments: str) -> str:
    """The inventory, with these arguments of n0's kernel."""
    return RACK.format(args=arguments, secrets=site.world.head.vault.directory)


async def apply(site: Site, who: dict[str, str], text: str, **more: object) -> None:
    body = {"yaml": text, "file": "rack.yaml", "confirm_secrets": True, **more}
    await site.ask("POST", "/v1/inventory/apply", who, json=body)


async def test_every_change_is_a_commit_that_says_who_what_why_and_how(site: Site) -> None:
    admin = await site.token("ada", "admin")
    await apply(site, admin, rack(site, "quiet"), reason="the rack is wired anew")
    body = {"set": {"kernel_args": "debug"}, "by": "grace", "reason": "ticket 7"}
    await site.ask("PATCH", "/v1/nodes/n0", admin, json=body)
    await site.ask("POST", "/v1/nodes/state", admin, json={"range": "n1", "state": "off"})
    await site.history.caught_up()

    off, changed, applied, first = site.git("log", "--format=%an|%s").splitlines()
    assert off == "ada|want off: n1"
    assert changed == "ada for grace|change kernel_args of n0"
    assert applied.startswith("ada|change bmc, domains, groups, ip, kernel_args of n0; ")
    assert first == "layercake|add n[0-1]"
    message = site.git("log", "-1", "--skip=1", "--format=%B")
    assert "ticket 7" in message
    assert "Layercake-How: PATCH /v1/nodes/n0 (" in message
    assert "Layercake-Token: ada" in message
    assert "Layercake-From: 127.0.0.1" in message


async def test_a_changed_value_is_a_changed_line(site: Site) -> None:
    admin = await site.token("ada", "admin")
    await apply(site, admin, rack(site, "quiet"))
    await apply(site, admin, rack(site, "debug"))
    await site.history.caught_up()
    assert site.git("diff", "--numstat", "HEAD~1", "HEAD").split()[:2] == ["1", "1"]
    assert '-kernel_args: "quiet"\n+kernel_args: "debug"' in site.git("diff", "HEAD~1", "HEAD")
    assert 'subnet: "10.20.0.0/24"' in site.git("show", "HEAD:networks/far.yaml")


async def test_no_secret_is_in_it_only_where_it_is(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = await site.token("ada", "admin")
    await apply(site, admin, rack(site, "quiet"))
    await site.history.caught_up()
    token = admin["Authorization"].removeprefix("Bearer ")
    everything = site.git("log", "-p", "--format=fuller")
    assert 'bmc.password: {"file": "' in everything
    assert token not in everything


async def test_what_changes_nothing_is_no_commit(site: Site) -> None:
    admin = await site.token("ada", "admin")
    await site.history.caught_up()
    before = site.git("rev-parse", "main")
    body = {"range": "n0", "state": "up"}
    await site.ask("POST", "/v1/nodes/state", admin, json=body)
    await site.ask("POST", "/v1/guard/freeze", admin, json={"range": "n0", "reason": "work"})
    await site.history.caught_up()
    assert site.git("rev-parse", "main") == before
