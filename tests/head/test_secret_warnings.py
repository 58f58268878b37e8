"""Secrets of the inventory: from one directory only, sent to another place only when a person says
so, and warned about each time.

An administrator had any one-line file of the head sent to a BMC address of his choice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from layercake.base.secrets import SecretRef, resolve
from layercake.features.inventory.new_inventory import Consent
from layercake.features.inventory.secret_warnings import Warnings
from layercake.kraken.errors import InputError, Refused
from layercake.moduleapi import module_pb2 as pb
from tests.support.world import INVENTORY, World

ADDRESS = "https://10.1.0.9:8000"


def rack(file: Path | str, address: str = ADDRESS, more: str = "") -> str:
    bmc = (
        f"bmc: {{driver: redfish, address: '{address}', username: a, password: {{file: "
        f"'{file}'}}{more}}}"
    )
    return INVENTORY.replace("ip: 10.1.0.10", f"ip: 10.1.0.10, {bmc}")


@pytest.fixture
def secrets(world: World) -> Path:
    directory = world.head.data_dir / "secrets"
    directory.mkdir(mode=0o700)
    (directory / "bmc").write_text("hunter2\n")
    (directory / "bmc").chmod(0o600)
    return directory


@pytest.fixture
def told(world: World, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What powerman is told of n0."""
    found: list[dict[str, Any]] = []

    def send(module: str, message: pb.FromHead) -> bool:
        if module == "powerman" and message.WhichOneof("kind") == "node_changed":
            found.append(json.loads(message.node_changed.json))
        return True

    monkeypatch.setattr(world.head.modules.host, "send", send)
    return found


def passwords(told: list[dict[str, Any]]) -> set[str]:
    return {record["bmc"]["password"] for record in told if record["bmc"]}


@pytest.mark.parametrize(
    "file",
    ["/etc/hostname", "/etc/shadow", "{}/../admin.token", "{}/x/../../admin.token", "/", "{}"],
)
async def test_a_file_elsewhere_is_refused_and_never_sent(
    world: World, secrets: Path, told: list[dict[str, Any]], file: str
) -> None:
    file = file.format(secrets)
    for attempt in (
        world.ops.inventory.plan(rack(file), "x.yaml"),
        world.ops.inventory.apply(rack(file), "x.yaml", None, False),
    ):
        with pytest.raises(InputError):
            await attempt
    assert passwords(told) == set()


@pytest.mark.parametrize("kind", ["link", "directory link", "hard to see", "fifo", "device"])
async def test_nothing_in_the_directory_leads_out_of_it(
    world: World, secrets: Path, told: list[dict[str, Any]], kind: str
) -> None:
    outside, name = secrets.parent / "outside", "odd"
    outside.mkdir()
    (outside / "token").write_text("the head's\n")
    if kind == "link":
        (secrets / name).symlink_to(outside / "token")
    elif kind == "fifo":
        os.mkfifo(secrets / name)
    elif kind == "device":
        os.mknod(secrets / name, 0o20600, os.makedev(1, 5))
    else:
        (secrets / "below").symlink_to(outside)
        name = "below/token" if kind == "directory link" else "below//./token"
    plan = await world.ops.inventory.plan(rack(f"{secrets}/{name}"), "x.yaml")
    assert any("cannot read secret" in w["message"] for w in plan["warnings"])
    await world.ops.inventory.apply(rack(f"{secrets}/{name}"), "x.yaml", None, False)
    assert passwords(told) == {""}
    assert "secret.unreadable" in [e.kind for e in world.events_of("n0")]


async def test_a_name_and_a_path_inside_are_read(
    world: World, secrets: Path, told: list[dict[str, Any]]
) -> None:
    (secrets / "rack1").mkdir()
    (secrets / "rack1/bmc").write_text("hunter3\n")
    for name in ("bmc", "rack1/bmc"):
        await world.ops.inventory.apply(rack(f"{secrets}/{name}"), "x.yaml", None, False)
    assert passwords(told) == {"hunter2", "hunter3"}


@pytest.mark.parametrize(
    "change",
    [
        {"address": "https://10.1.0.66:8000"},
        {"address": "http://10.1.0.9:8000"},
        {"more": ", verify_tls: false"},
        {"address": "https://10.1.0.66:8000", "file": "{}/other"},
    ],
)
async def test_a_secret_goes_elsewhere_only_when_that_is_confirmed(
    world: World, secrets: Path, told: list[dict[str, Any]], change: dict[str, str]
) -> None:
    (secrets / "other").write_text("another\n")
    await world.ops.inventory.apply(rack(secrets / "bmc"), "x.yaml", None, False)
    changed = rack(
        **{
            "file": f"{secrets}/bmc",
            **{key: value.format(secrets) for key, value in change.items()},
        }
    )
    before = len(told)
    plan = await world.ops.inventory.plan(changed, "x.yaml")
    assert [entry["node"] for entry in plan["secrets"]] == ["n0"] and ADDRESS in plan["secrets"][0][
        "from"
    ]
    with pytest.raises(Refused, match="the secret of n0 would go to redfish ") as refused:
        await world.ops.inventory.apply(changed, "x.yaml", None, False)
    assert "--confirm-secrets" in refused.value.hint
    assert len(told) == before
    await world.ops.inventory.apply(changed, "x.yaml", None, False, Consent(confirm_secrets=True))
    assert len(told) > before
    assert (await world.ops.inventory.plan(changed, "x.yaml"))["secrets"] == []


async def test_careless_ways_are_warned_about_each_time(world: World, secrets: Path) -> None:
    (secrets / "bmc").chmod(0o644)
    for address, more, text in (
        ("http://10.1.0.9", "", "over http://"),
        (ADDRESS, ", verify_tls: false", "verify_tls: false"),
        (ADDRESS, "", "open to others (mode 0644)"),
    ):
        yaml = rack(secrets / "bmc", address, more)
        for _ in range(2):
            plan = await world.ops.inventory.plan(yaml, "x.yaml")
            assert any(
                text in w["message"] and w["message"].startswith("n0: ") for w in plan["warnings"]
            ), plan["warnings"]
            assert "hunter2" not in repr(plan)
    await world.ops.inventory.apply(rack(secrets / "bmc", "http://10.1.0.9"), "x.yaml", None, False)
    said = world.head.part(Warnings)
    shown = await said.now()
    assert (
        len(shown) == 2
        and shown == await said.now()
        and all(line.startswith("n0: ") for line in shown)
    )
    (secrets / "bmc").chmod(0o600)
    assert (await world.ops.inventory.plan(rack(secrets / "bmc"), "x.yaml"))["warnings"] == []
    world.clock.now += 120
    assert len(await said.now()) == 1


async def test_a_secret_that_others_may_read_is_told_once(
    world: World, secrets: Path, told: list[dict[str, Any]]
) -> None:
    (secrets / "bmc").chmod(0o640)
    await world.ops.inventory.apply(rack(secrets / "bmc"), "x.yaml", None, False)
    world.head.modules.notifier.changed(world.node("n0"))
    assert passwords(told) == {"hunter2"}
    assert [e.kind for e in world.head.store.events].count("secret.exposed") == 1


def test_a_person_may_name_any_file_of_his_own(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine\n")
    assert resolve(SecretRef(file=str(tmp_path / "token"))).reveal() == "mine"
    with pytest.raises(InputError, match="is not in"):
        resolve(SecretRef(file=str(tmp_path / "token")), tmp_path / "secrets")


async def test_a_secret_of_another_node_is_compared_with_its_place(
    world: World, secrets: Path
) -> None:
    """The place alone did not change: another node's password was sent to it."""
    (secrets / "other").write_text("hunter3\n")
    (secrets / "other").chmod(0o600)
    two = rack(secrets / "bmc") + (
        '  n9: {mac: "52:54:00:00:00:99", ip: 10.1.0.99, bmc: {driver: redfish, username: a, '
        f"address: 'https://10.1.0.8:8000', password: {{file: '{secrets}/other'}}}}}}\n"
    )
    await world.ops.inventory.apply(two, "x.yaml", None, False)
    wanted = {"bmc.password": {"file": str(secrets / "other")}}
    with pytest.raises(
        Refused, match=r"the secret of n0 would go to .*10\.1\.0\.9:8000 .*, as n9's"
    ):
        await world.ops.inventory.change("n0", wanted, ())
    await world.ops.inventory.change("n0", wanted, (), Consent(confirm_secrets=True))
