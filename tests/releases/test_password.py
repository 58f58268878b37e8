"""The password of a BMC in a release: on disk first, turned once, and left where it is not the
head's or the node's alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from layercake.base.secrets import SecretRef, Vault
from layercake.features.releases.steps import password
from layercake.kraken.errors import InputError, NotFound, OperationFailed
from tests.support.world import INVENTORY, World

REF = SecretRef(file="bmc/n0")


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    (tmp_path / "secrets/bmc").mkdir(parents=True)
    (tmp_path / "secrets/bmc/n0").write_text("old\n")
    return Vault(tmp_path / "secrets", {})


class Bmc:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self.left = ""

    async def ask(self, call: str, params: Mapping[str, Any]) -> Any:
        assert call == "power.password"
        self.asked.append(params["password"])
        if self.fails is not None:
            raise self.fails
        return {"where": "10.0.0.1:623", "left": self.left}


async def test_a_new_one_is_kept_once_the_bmc_takes_it(world: World, vault: Vault) -> None:
    bmc = Bmc()
    told: list[str] = []
    said = await password.turn(world.node("n0"), REF, vault, bmc.ask, lambda r: told.append(r.name))
    now = vault.open(REF).reveal()
    assert (bmc.asked, len(now), told) == ([now], 16, ["n0"])
    assert now not in said
    assert (vault.directory / "bmc/n0").stat().st_mode & 0o777 == 0o600
    assert [p.name for p in (vault.directory / "bmc").iterdir()] == ["n0"]


async def test_one_that_was_cut_off_goes_on_with_the_same(world: World, vault: Vault) -> None:
    bmc = Bmc()
    bmc.fails = OperationFailed("cut off")
    with pytest.raises(OperationFailed):
        await password.turn(world.node("n0"), REF, vault, bmc.ask, lambda r: None)
    assert vault.open(REF).reveal() == "old"
    bmc.fails = None
    await password.turn(world.node("n0"), REF, vault, bmc.ask, lambda r: None)
    assert bmc.asked == [vault.open(REF).reveal()] * 2


async def test_a_bmc_that_cannot_is_left(world: World, vault: Vault) -> None:
    bmc = Bmc()
    bmc.left = "it has no accounts"
    with pytest.raises(password.Left, match="no accounts"):
        await password.turn(world.node("n0"), REF, vault, bmc.ask, lambda r: None)
    assert vault.open(REF).reveal() == "old"


def test_a_secret_is_written_below_its_directory_alone(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (vault.directory / "out").symlink_to(tmp_path / "elsewhere")
    (vault.directory / "link").symlink_to(tmp_path / "elsewhere/x")
    for name in ("../x", "/etc/x", "out/x", "link"):
        with pytest.raises(InputError):
            vault.prepare(SecretRef(file=name), lambda: "new")
    with pytest.raises(InputError, match="it is no file"):
        vault.prepare(SecretRef(env="X"), lambda: "new")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("{env: BMC}", "environment variable BMC"),
        ("{file: PATH/all}", r"1 other node with the same password \(n1\)"),
    ],
)
async def test_a_password_that_is_not_this_nodes_alone_is_left(
    world: World, reference: str, why: str
) -> None:
    where = reference.replace("PATH", str(world.head.vault.directory))
    bmc = f"bmc: {{driver: ipmi, address: 10.9.0.1, username: admin, password: {where}}}"
    text = INVENTORY.replace("ip: 10.1.0.10", f"ip: 10.1.0.10, {bmc}")
    text = text.replace("ip: 10.1.0.11", f"ip: 10.1.0.11, {bmc.replace('9.0.1', '9.0.2')}")
    await world.ops.inventory.apply(text, "t.yaml", None, False)
    with pytest.raises(password.Left, match=why):
        password.of(world.node("n0"), world.head.table.caller["power.password"], world.head.store)


async def test_a_node_without_a_bmc_is_left(world: World) -> None:
    with pytest.raises(password.Left, match="no password"):
        password.of(world.node("n0"), world.head.table.caller["power.password"], world.head.store)


async def test_only_the_head_asks_for_it(world: World) -> None:
    """A password in the body of a request would be in whatever records requests."""
    assert password.PASSWORD in world.head.table.calls
    assert password.PASSWORD not in {view["name"] for view in world.ops.calls.views()}
    with pytest.raises(NotFound, match="only the head itself"):
        await world.ops.calls.call(password.PASSWORD, "n0", {"password": "x" * 16})
