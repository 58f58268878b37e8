"""A node that joins shows by its TPM who it is and what it has booted: by a real one in software,
spoken to as on a node."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import TestClient

from layercake.base.secrets import mark_of
from layercake.features.machines.manager import Machines
from layercake.features.tpm.evidence import certificate, credential
from layercake.features.tpm.manager import Tpms
from layercake.kraken.errors import OperationFailed, Refused
from layercake.kraken.wire import bearer
from layercake.moduleapi.strangers import Tickets
from minos.tpm.commands import Tpm
from minos.tpm.keys import AK_TEMPLATE, ENDORSEMENTS, Endorsement
from minos.tpm.proof import fingerprint, prove
from pxe.events import SCRIPT_SENT
from tests.support.swtpm import SoftTpm
from tests.support.world import World, node_client
from tests.tpm.logs import log_of

BOOT = "7f0c6b0e-0000-4000-8000-000000000001"
INVENTORY = """
defaults: {{console: ttyS0, images: [], {keys}}}
nodes:
  n0: {{mac: "52:54:00:00:00:10", ip: 10.1.0.10}}
  n1: {{mac: "52:54:00:00:00:11", ip: 10.1.0.11, firmware: uefi}}
"""


async def wanted(world: World, keys: str) -> None:
    await world.ops.inventory.apply(INVENTORY.format(keys=keys), "test.yaml", None, False)


async def joins(
    world: World,
    client: TestClient[Any, Any],
    tpm: SoftTpm | None,
    *,
    boot_id: str = BOOT,
    log: bytes = b"",
    mac: str = "52:54:00:00:00:10",
    change: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    reset: bool = True,
    token: str = "",
    boot: str = "",
) -> tuple[int, dict[str, Any]]:
    """A boot of n0, from the token to the answer: what the agent's link does. With `reset` the
    machine starts anew for it; `boot` is the boot set that it says it has booted."""
    if tpm is not None and reset:
        await asyncio.to_thread(tpm.boot_again)
    token = token or world.head.joining.open(world.node("n0"), 60)
    claim = {
        "node": world.node("n0").node.id,
        "token": token,
        "boot_id": boot_id,
        "mac": mac,
        "version": "1",
        "tpm": True,
        "boot": boot,
    }
    loop = asyncio.get_running_loop()

    async def posted(path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        async with client.post(path, json=body) as answer:
            return answer.status, await answer.json()

    def ask(said: Mapping[str, Any]) -> Any:
        status, answer = asyncio.run_coroutine_threadsafe(
            posted("/node/v1/attest", {**claim, "tpm": change(dict(said))}), loop
        ).result(20)
        if status != 200:
            raise (Refused if status == 403 else OperationFailed)(answer["error"])
        return answer

    status, answer = await posted("/node/v1/join", claim)
    if "attest" not in answer:
        return status, answer

    def none() -> Any:
        raise OperationFailed("cannot use the TPM: this machine has none that the kernel knows")

    try:
        word = await asyncio.to_thread(prove, ask, none if tpm is None else tpm.wire, lambda: log)
    except (Refused, OperationFailed) as error:
        return 403, {"error": error.message}
    return await posted("/node/v1/join", {**claim, "pass": word})


def told(world: World, kind: str) -> list[str]:
    return [event.text for event in world.events_of("n0") if event.kind == kind]


def trouble(world: World) -> str:
    return world.head.part(Tpms).troubles(world.node("n0"))[0]


EK = ENDORSEMENTS[0]


async def test_a_credential_is_opened_by_the_tpm_that_it_is_for_and_by_no_other(
    tpm: SoftTpm, other: SoftTpm, made: tuple[SoftTpm, SoftTpm, Path]
) -> None:
    wire = tpm.wire()
    its = Tpm(wire)
    endorsement, public = its.key(EK.template)
    attestation, name = its.key(AK_TEMPLATE)
    key = credential.endorsement_key(public)
    blob, seed = credential.make(key, credential.name_of(name), b"held")
    assert its.activate(attestation, endorsement, blob, seed, EK) == b"held"
    found = certificate.vouched(
        its.stored(EK.certificate), key.key, certificate.authorities(str(made[2]))
    )
    assert found.trouble == "" and "swtpm" in found.issuer
    another = certificate.vouched(its.stored(EK.certificate), key.key, ())
    assert "not among the authorities" in another.trouble
    with pytest.raises(OperationFailed, match="refuses command 0x147"):
        its.activate(attestation, endorsement, blob[:-1] + b"x", seed, EK)
    wire.close()
    wire = other.wire()
    its = Tpm(wire)
    endorsement, attestation = its.key(EK.template)[0], its.key(AK_TEMPLATE)[0]
    with pytest.raises(OperationFailed, match="refuses command 0x147"):
        its.activate(attestation, endorsement, blob, seed, EK)
    assert its.stored(EK.certificate) == b""
    wire.close()


@pytest.mark.parametrize("kind", ENDORSEMENTS, ids=lambda kind: kind.name)
def test_a_credential_for_each_kind_of_endorsement_key(other: SoftTpm, kind: Endorsement) -> None:
    wire = other.wire()
    its = Tpm(wire)
    endorsement, public = its.key(kind.template)
    attestation, name = its.key(AK_TEMPLATE)
    key = credential.endorsement_key(public)
    assert key.kind is kind
    for _ in range(3):
        blob, seed = credential.make(key, credential.name_of(name), b"held")
        assert its.activate(attestation, endorsement, blob, seed, kind) == b"held"
    with pytest.raises(OperationFailed, match="refuses command 0x147"):
        its.activate(attestation, endorsement, blob[:-1] + bytes([blob[-1] ^ 1]), seed, kind)
    wire.close()


async def test_a_tpm_is_named_by_the_key_that_its_maker_has_vouched_for(
    world: World, client: TestClient[Any, Any], curved: SoftTpm, made: tuple[SoftTpm, SoftTpm, Path]
) -> None:
    world.head.part(Tpms).authorities = certificate.authorities(str(made[2]))
    await wanted(world, "tpm: recorded")
    assert (await joins(world, client, curved))[0] == 200
    assert world.head.part(Tpms).troubles(world.node("n0")) == [], (
        "its certificate is believed, though there is none for RSA"
    )
    last = world.head.part(Tpms).of(world.node("n0")).last
    assert last is not None and "swtpm" in last.issuer and last.ek == fingerprint(curved.wire)


async def test_no_tpm_is_asked_for_where_the_inventory_does_not(
    world: World, client: TestClient[Any, Any]
) -> None:
    status, answer = await joins(world, client, None)
    assert status == 200 and "session" in answer
    token = world.head.joining.open(world.node("n0"), 60)
    claim = {
        "node": world.node("n0").node.id,
        "token": token,
        "boot_id": BOOT,
        "mac": "52:54:00:00:00:10",
        "version": "1",
    }
    assert (
        await client.post("/node/v1/attest", json={**claim, "tpm": {"missing": "none"}})
    ).status == 403


async def test_recorded_is_told_of_and_refuses_nobody(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm, other: SoftTpm
) -> None:
    await wanted(world, "tpm: recorded")
    assert (await joins(world, client, tpm))[0] == 200
    session = world.node("n0").session
    assert session is not None and session.quoted
    assert "registers 4, 7" in told(world, "tpm.recorded")[0]
    assert world.head.part(Tpms).troubles(world.node("n0")) == []
    assert (await joins(world, client, other))[0] == 200
    assert "its TPM is another one" in told(world, "tpm.differs")[0]
    session = world.node("n0").session
    assert session is not None and not session.quoted
    assert (await joins(world, client, None))[0] == 200
    assert "this machine has none" in world.head.part(Tpms).troubles(world.node("n0"))[0]
    await world.restart()
    assert world.head.part(Tpms).of(world.node("n0")).ek and "tpm.recorded" in world.kinds("n0")


async def test_a_tpm_vouches_for_a_boot_that_was_recorded_before(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm, other: SoftTpm
) -> None:
    """What is recorded in this very boot is what the machine says of itself."""

    async def vouched(tpm: SoftTpm | None) -> bool:
        assert (await joins(world, client, tpm))[0] == 200
        return world.head.part(Tpms).vouches(world.node("n0"))

    assert not await vouched(None), "the inventory asks for none"
    await wanted(world, "tpm: recorded")
    assert not await vouched(tpm), "it is recorded now"
    assert await vouched(tpm)
    wire = tpm.wire()
    Tpm(wire).clear()
    wire.close()
    await world.head.part(Tpms).cleared(world.node("n0"))
    assert await vouched(tpm), "a release clears it, and its counters with it"
    assert not await vouched(other)
    await wanted(world, "tpm: recorded, tpm_registers: [7]")
    assert not await vouched(tpm), "who it is, and not what it has booted"


async def test_a_stolen_token_is_worth_nothing(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm, other: SoftTpm
) -> None:
    await wanted(world, "tpm: recorded")
    assert (await joins(world, client, tpm))[0] == 200
    await wanted(world, "tpm: required")
    assert (await joins(world, client, other))[0] == 403
    assert "its TPM is another one" in told(world, "tpm.refused")[0]
    assert (await joins(world, client, None))[0] == 403
    assert "none that the kernel knows" in trouble(world)
    token = world.head.joining.open(world.node("n0"), 60)
    claim = {
        "node": world.node("n0").node.id,
        "token": token,
        "boot_id": BOOT,
        "mac": "52:54:00:00:00:10",
        "version": "1",
    }
    assert (await client.post("/node/v1/join", json=claim)).status == 403, (
        "an agent that knows of no TPM"
    )
    for word in ("", "x" * 32, None, 7):
        answer = await client.post("/node/v1/join", json={**claim, "tpm": True, "pass": word})
        assert "session" not in await answer.json()
    assert "of a version that knows of no TPM" in trouble(world)
    with pytest.raises(Refused, match="not shown for this join"):
        world.head.part(Tpms).spend(world.node("n0"), BOOT)
    assert (await joins(world, client, tpm))[0] == 200, (
        "the node itself joins, whatever others have tried"
    )


async def test_required_takes_nobody_in_whom_no_person_has_taken(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm
) -> None:
    await wanted(world, "tpm: required")
    assert (await joins(world, client, tpm))[0] == 403
    assert (
        "no TPM was recorded" in told(world, "tpm.refused")[0]
        and "tpm accept n0" in told(world, "tpm.refused")[0]
    )
    await world.ops.tpms.accept("n0", "me")
    assert (await joins(world, client, tpm))[0] == 200
    await world.head.part(Tpms).forget(world.node("n0"))
    assert (await joins(world, client, tpm))[0] == 403


def swapped(**words: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """What a node says, with something else in its place."""
    return lambda said: {**said, **{word: value for word, value in words.items() if word in said}}


async def test_what_was_tampered_with_is_refused(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm
) -> None:
    await wanted(world, "tpm: recorded")
    heard: dict[str, Any] = {}
    assert (await joins(world, client, tpm, change=lambda said: heard.update(said) or said))[
        0
    ] == 200
    await wanted(world, "tpm: required")
    old = {word: heard[word] for word in ("quote", "signature", "registers")}
    another = {**heard["registers"], "4": hashlib.sha256(b"x").hexdigest()}
    key = base64.b64decode(heard["ak"])
    free = base64.b64encode(key[:4] + bytes(4) + key[8:]).decode()
    for words, why in (
        (old, "it is not of this join"),
        ({"registers": another}, "others than those in it"),
        ({"signature": base64.b64encode(b"\0\x18\0\x0b\0\1x\0\1y").decode()}, "signature is not"),
        ({"signature": "AAAA"}, "not as agreed"),
        ({"quote": "/1RDRw=="}, "signature is not"),
        ({"registers": {"4": "zz"}}, "values of the registers"),
        ({"registers": {}}, "other registers"),
        ({"registers": [1]}, "values of the registers"),
        ({"quote": 7}, "what the node says"),
    ):
        status, _ = await joins(world, client, tpm, change=swapped(**words))
        assert status == 403 and why in world.head.part(Tpms).of(world.node("n0")).troubles[0], (
            words,
            why,
        )
    assert "not as agreed" in (await joins(world, client, tpm, change=swapped(ak=free)))[1]["error"]
    assert "no usual kind" in (await joins(world, client, tpm, change=swapped(ek=free)))[1]["error"]
    assert (await joins(world, client, tpm))[0] == 200


async def test_a_register_that_differs_is_named_with_what_differs(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm
) -> None:
    await wanted(world, "tpm: recorded, tpm_registers: [4, 7]")
    one, two, evil = (
        hashlib.sha256(word).digest() for word in (b"boot program", b"kernel", b"evil")
    )
    tpm.extend(4, one)
    tpm.extend(4, two)
    assert (await joins(world, client, tpm, log=log_of((4, one, b"iPXE"), (4, two, b"vmlinuz"))))[
        0
    ] == 200
    await wanted(world, "tpm: required, tpm_registers: [4, 7]")
    tpm.start()
    tpm.extend(4, one)
    tpm.extend(4, evil)
    assert (await joins(world, client, tpm, log=log_of((4, one, b"iPXE"), (4, evil, b"evil.efi"))))[
        0
    ] == 403
    found = world.head.part(Tpms).troubles(world.node("n0"))
    assert "register 4 (what the firmware started) is not what was recorded" in found
    assert "register 4: IPL evil.efi, it was IPL vmlinuz" in found
    assert (await joins(world, client, tpm, log=log_of((4, one, b"iPXE"), (4, two, b"vmlinuz"))))[
        0
    ] == 403
    assert any(
        "not to be believed" in line for line in world.head.part(Tpms).troubles(world.node("n0"))
    )
    await world.ops.tpms.accept("n0", "me")
    assert (await joins(world, client, tpm))[0] == 200
    assert world.head.part(Tpms).troubles(world.node("n0")) == []


async def test_another_configuration_of_grub_than_the_head_has_sent_is_refused(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm
) -> None:
    """`rdinit=/usr/bin/sh` in the command line: all that was compared before is as it was."""
    name, of_kernel = b"(tftp,10.1.0.1)/node/52:54:00:00:00:10.cfg", b"LOADED_IMAGE::LoadOptions"
    record = world.node("n0")

    async def boots(sent: bytes, read: bytes, label: bytes = name) -> int:
        """A boot whose configuration was sent, and what GRUB has read."""
        tpm.start()
        digests = [hashlib.sha256(word).digest() for word in (read, b"kernel", read + b" line")]
        for digest in digests:
            tpm.extend(9, digest)
        token = world.head.joining.open(record, 60)
        data = {"configuration": hashlib.sha256(sent).hexdigest(), "window": mark_of(token)}
        world.head.store.event(record, SCRIPT_SENT, "sent boot script", data=data)
        names = (label, b"(tftp)/vmlinuz", of_kernel)
        log = log_of(*((9, digest, name) for digest, name in zip(digests, names, strict=True)))
        return (await joins(world, client, tpm, log=log, token=token))[0]

    await wanted(world, "tpm: recorded, tpm_registers: [4, 7, 9]")
    assert await boots(b"token 1", b"token 1") == 200
    await wanted(world, "tpm: required, tpm_registers: [4, 7, 9]")
    assert await boots(b"token 2", b"token 2") == 200, "another token in each boot"
    assert await boots(b"token 3", b"token 3 rdinit=/usr/bin/sh") == 403
    assert "has not read the configuration" in trouble(world)
    assert await boots(b"token 4", b"token 4 rdinit=/usr/bin/sh", of_kernel) == 403
    assert await boots(b"token 5", b"token 2") == 403, "that of an earlier boot"


async def test_a_system_that_another_one_has_started_shows_registers_of_an_earlier_boot(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm
) -> None:
    await wanted(world, "tpm: recorded")
    assert (await joins(world, client, tpm))[0] == 200
    await wanted(world, "tpm: required")
    for _ in range(2):
        assert (await joins(world, client, tpm, reset=False))[0] == 403
        assert "was not reset for this boot" in trouble(world)
    assert (await joins(world, client, tpm))[0] == 200


async def test_secrets_go_to_quoted_boots_only(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm, other: SoftTpm
) -> None:
    await wanted(world, "tpm: recorded, secrets: quoted")

    async def files(answer: dict[str, Any]) -> int:
        record = world.node("n0")
        header = bearer(
            base64.b64decode(answer["key"]),
            bytes.fromhex(record.node.id.replace("-", "")),
            answer["session"],
        )
        assert record.session is not None
        record.session = replace(record.session, mutual=False)
        async with client.get("/node/v1/files", headers={"Authorization": header}) as found:
            return found.status

    assert await files((await joins(world, client, tpm))[1]) == 200
    assert await files((await joins(world, client, other))[1]) == 403
    assert told(world, "tpm.withheld") and any(
        "no secrets" in line for line in world.head.part(Tpms).troubles(world.node("n0"))
    )


async def test_an_adopted_machine_joins_by_the_tpm_that_it_has_reported(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm, other: SoftTpm
) -> None:
    mac, body = "52:54:00:00:00:77", {"mac": "52:54:00:00:00:77", "boot_id": "b"}
    tickets = Tickets(world.directory, world.head.store.wall)

    async def reports(ek: str) -> None:
        ticket = tickets.issue(mac, "10.1.0.77", 600)
        await world.head.part(Machines).stranger(
            {**body, "ticket": ticket, "report": {"tpm": "2.0", "tpm_ek": ek}}, "10.1.0.77"
        )

    own = fingerprint(tpm.wire)
    await reports(own)
    text = INVENTORY.format(keys="tpm: required").replace("52:54:00:00:00:10", mac)
    await world.ops.inventory.apply(text, "test.yaml", None, False)
    await reports(fingerprint(other.wire))
    assert world.head.part(Machines).endorsement(world.node("n0")) == own, (
        "what is said after it was taken in does not count"
    )
    assert (await joins(world, client, other, mac=mac))[0] == 403
    assert (await joins(world, client, tpm, mac=mac))[0] == 200


async def test_tpms_of_makers_that_nobody_knows_are_not_recorded(
    world: World, tpm: SoftTpm, other: SoftTpm, made: tuple[SoftTpm, SoftTpm, Path]
) -> None:
    world.settings = msgspec.structs.replace(
        world.settings, sections={**world.settings.sections, "tpm": {"authorities": str(made[2])}}
    )
    await world.restart()
    await wanted(world, "tpm: recorded")
    async with node_client(world) as client:
        assert (await joins(world, client, other))[0] == 200
        assert "its TPM is not one that can be recorded: it has no certificate" in trouble(world)
        assert world.head.part(Tpms).of(world.node("n0")).ek == ""
        assert (await joins(world, client, tpm))[0] == 200
        assert world.head.part(Tpms).of(world.node("n0")).ek == fingerprint(tpm.wire)


async def test_a_tpm_that_was_cleared_in_a_release_joins_again(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm
) -> None:
    """TPM2_Clear has it count its resets from 0, with the endorsement key that it had."""
    await wanted(world, "tpm: recorded, tpm_registers: [4, 7, 9]")
    for _ in range(3):
        assert (await joins(world, client, tpm))[0] == 200
    await wanted(world, "tpm: required, tpm_registers: [4, 7, 9]")

    def clear() -> None:
        with contextlib.closing(tpm.wire()) as wire:
            Tpm(wire).clear()

    await asyncio.to_thread(clear)
    assert (await joins(world, client, tpm))[0] == 403, "it counts fewer, and nobody has said why"
    await world.head.kernel.running.decisions.tpm_cleared(world.node("n0"))
    await asyncio.to_thread(clear)
    assert (await joins(world, client, tpm))[0] == 200
    assert (await joins(world, client, tpm, reset=False))[0] == 403, "the next is compared again"


async def test_the_boot_set_that_was_sent_joins_when_another_is_wanted_meanwhile(
    world: World, client: TestClient[Any, Any], tpm: SoftTpm
) -> None:
    """`boot default` between the boot script and the join."""
    await wanted(world, "tpm: recorded, tpm_registers: [4, 7, 9]")
    assert (await joins(world, client, tpm))[0] == 200
    await wanted(world, "tpm: required, tpm_registers: [4, 7, 9]")
    record = world.node("n0")

    async def boots(*, of_this_boot: bool) -> int:
        token = world.head.joining.open(record, 60)
        window = mark_of(token if of_this_boot else "that of an earlier boot")
        data = {"configuration": "", "window": window, "boot": "of-before"}
        world.head.store.event(record, SCRIPT_SENT, "sent boot script", data=data)
        return (await joins(world, client, tpm, token=token, boot="of-before"))[0]

    assert await boots(of_this_boot=False) == 403
    assert "was to boot none" in trouble(world)
    assert await boots(of_this_boot=True) == 200
