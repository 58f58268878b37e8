"""Boot sets on disk: named by their content, never changed, and what an older Layercake left
becomes one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from imageapi.spec.image import manifest
from imageapi.store.manifest import Signer
from layercake.features.boots.boot_sets import DOCUMENT, BootSets
from layercake.fleet.boots import Boots
from layercake.kraken.errors import InputError, LayercakeError, NotFound, Refused
from layercake.setup import build_boot
from minos.build import BuildOptions, sets
from minos.build.profiles import Profile
from minos.build.sets import MODULES


def fill(directory: Path, content: str, *, agent: bool = True) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name in (*sets.FILES, *([sets.AGENT] if agent else [])):
        (directory / name).write_text(f"{name} {content}")
    return directory


def known(boot: Path) -> BootSets:
    return BootSets(boot, lambda data: b"signed " + data, Signer(boot.parent / "signing.key"))


def signed(boot: Path, directory: Path) -> str:
    """Makes a set of a directory, signed as `add` does; its name."""
    sets.sign(directory, sets.name_of(directory), Signer(boot.parent / "signing.key").sign)
    return sets.install_set(boot, directory).name


def test_what_an_older_layercake_built_becomes_a_set_and_the_default(tmp_path: Path) -> None:
    fill(tmp_path, "old", agent=False)
    sets.adopt(tmp_path, clear=False)
    assert (tmp_path / "vmlinuz").exists(), "an older head that still runs goes on serving it"
    newer = sets.install_set(tmp_path, fill(tmp_path / ".new", "new"))
    head = known(tmp_path)
    head.load({})
    assert not (tmp_path / "vmlinuz").exists() and not list(tmp_path.glob(".new*"))
    assert (
        head.default != newer.name
        and (tmp_path / head.default / "vmlinuz").read_text() == "vmlinuz old"
    )
    assert head.of(Boots()) == head.default and head.of(Boots(wanted=newer.name)) == newer.name
    head.load({DOCUMENT: newer.name.encode()})
    assert head.default == newer.name, "what was chosen stays chosen"
    head.load({DOCUMENT: b"gone"})
    assert head.default in {s.name for s in head.all()}


def test_the_same_content_is_the_same_set(tmp_path: Path) -> None:
    first = sets.install_set(tmp_path, fill(tmp_path / ".a", "x"))
    again = sets.install_set(tmp_path, fill(tmp_path / ".b", "x"))
    other = sets.install_set(tmp_path, fill(tmp_path / ".c", "y"))
    assert (
        first == again
        and other.name != first.name
        and {s.name for s in sets.all_of(tmp_path)} == {first.name, other.name}
    )
    (fill(tmp_path / ".d", "x") / sets.MODULES).write_text("modules")
    assert sets.install_set(tmp_path, tmp_path / ".d").name not in {first.name, other.name}, (
        "other modules are another set"
    )


@pytest.mark.parametrize("name", ["", "..", "../boot", ".new", "a/b", "A", "x" * 65, "a\n"])
def test_hostile_names_name_nothing(tmp_path: Path, name: str) -> None:
    fill(tmp_path / "boot", "x")
    fill(tmp_path / "boot" / ".new", "x")
    with pytest.raises(NotFound):
        sets.load(tmp_path / "boot", name)
    with pytest.raises(NotFound):
        sets.remove(tmp_path / "boot", name)


def test_what_a_node_is_told_of_its_agent(tmp_path: Path) -> None:
    name = signed(tmp_path, fill(tmp_path / ".a", "x"))
    head = known(tmp_path)
    head.load({})
    assert head.order(Boots(runs="old", agent_runs="old")) is None, "nothing is wanted"
    assert head.order(Boots(runs="old", agent_runs=name, agent=name)) is None, "it has it"
    assert head.order(Boots(agent=name)) is None, "an agent that cannot be replaced"
    assert head.order(Boots(runs="old", agent_runs=name, agent="old", ask=4)) == {
        "set": "old",
        "ask": 4,
    }, "its own"
    order = head.order(Boots(runs="old", agent_runs="old", agent=name, ask=3))
    assert order is not None and (order["set"], order["ask"], order["size"]) == (
        name,
        3,
        len("agent.zip x"),
    )
    bare = sets.install_set(tmp_path, fill(tmp_path / ".b", "bare", agent=False)).name
    with pytest.raises(InputError, match="cannot hand over the agent"):
        head.agent(bare)


def test_what_a_node_is_told_of_its_kernels_modules(tmp_path: Path) -> None:
    """What was signed when the set was built, and not what lies there now."""
    fill(tmp_path / ".a", "x")
    (tmp_path / ".a" / sets.MODULES).write_bytes(b"modules")
    name, older = (
        signed(tmp_path, tmp_path / ".a"),
        signed(tmp_path, fill(tmp_path / ".b", "an older Layercake")),
    )
    head, signer = known(tmp_path), Signer(tmp_path.parent / "signing.key")
    head.load({})
    assert head.reread() == {}
    assert all(head.part(one, MODULES) is None for one in (older, "gone", "../x"))
    digest = f"blake2b:{hashlib.blake2b(b'modules', digest_size=32).hexdigest()}"
    found = head.part(name, MODULES)
    assert found is not None and (found["digest"], found["size"]) == (digest, 7)
    assert signer.signed(manifest(digest, 7, {}), found["signature"])
    unread = known(tmp_path)
    (tmp_path / name / sets.MODULES).write_bytes(b"another")
    again = unread.part(name, MODULES)
    assert again is not None and again["digest"] == digest, (
        "what was signed stands: the node refuses what it gets"
    )
    assert (
        "modules.squashfs was changed" in head.reread()[name] and head.part(name, MODULES) is None
    )
    said = json.loads((tmp_path / name / "signature").read_text())
    (tmp_path / name / "signature").write_text(
        json.dumps({**said, "manifest": said["manifest"].replace(digest[8:], "a" * 64)})
    )
    assert known(tmp_path).part(name, MODULES) is None, "nobody else says what it is"
    (tmp_path / name / "signature").write_text("[]")
    assert known(tmp_path).part(name, MODULES) is None


@pytest.mark.parametrize(
    "file",
    [
        "vmlinuz",
        "minos.img",
        "hardware.img",
        "agent.zip",
        "modules.squashfs",
        "minos.json",
        "signature",
    ],
)
@pytest.mark.parametrize("how", ["changed", "grown", "cut short", "gone", "same size and time"])
def test_a_set_that_somebody_has_changed_is_given_to_no_node(
    tmp_path: Path, file: str, how: str
) -> None:
    """The attack: who can write below boot/ puts a kernel, a minOS or an agent of his own there.
    Before, nodes booted it, and the head signed the agent with its own authority and handed it
    over."""
    fill(tmp_path / ".a", "x")
    (tmp_path / ".a" / "minos.json").write_text('{"kernel_release": "6.1"}')
    (tmp_path / ".a" / sets.MODULES).write_text("modules")
    (tmp_path / ".a" / sets.HARDWARE).write_text("hardware")
    name, head = signed(tmp_path, tmp_path / ".a"), known(tmp_path)
    head.load({})
    assert head.reread() == {} and head.served(Boots()) == name and head.get(name).name == name
    target, before = tmp_path / name / file, (tmp_path / name / file).stat()
    if how == "changed":
        target.write_text("{}")
    elif how == "grown":
        target.write_bytes(target.read_bytes() + b"x")
    elif how == "cut short":
        target.write_bytes(target.read_bytes()[:-1])
    elif how == "gone":
        target.unlink()
    else:
        target.write_bytes(target.read_bytes()[::-1])
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(LayercakeError):
        head.get(name)
    with pytest.raises(LayercakeError):
        head.agent(name)
    assert head.order(Boots(runs="old", agent_runs="old", agent=name, ask=3)) is None
    if how == "gone" and file in sets.FILES:
        return  # it is no set any more
    assert head.served(Boots()) == "" and (file if file != "signature" else "sign") in head.trouble(
        name
    ), "and which file it is"


def test_a_set_of_another_head_is_not_taken_and_a_build_mends_what_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot, ours = tmp_path / "boot", Signer(tmp_path / "signing.key")
    monkeypatch.setattr(sets, "build", lambda options, say: fill(options.out, "x"))
    options = BuildOptions(boot, tmp_path / "cache", tmp_path / "ca.pem")
    theirs = sets.add(
        boot, options, print, Signer(tmp_path / "theirs").sign, lambda text, signature: True
    )
    head = known(boot)
    head.load({})
    assert head.reread() == {theirs.name: "it is not signed by this head"} and head.reread() == {}
    with pytest.raises(Refused, match="not signed by this head"):
        head.get(theirs.name)
    assert sets.add(boot, options, print, ours.sign, ours.signed).name == theirs.name
    assert head.reread() == {theirs.name: ""} and head.served(Boots()) == theirs.name
    inode = (theirs.directory / "vmlinuz").stat().st_ino
    sets.add(boot, options, print, ours.sign, ours.signed)
    assert (theirs.directory / "vmlinuz").stat().st_ino == inode, "one that is well stays"
    (boot / theirs.name).rename(boot / "0.2.0-00000000")
    with pytest.raises(Refused, match="its signature is that of"):
        head.get("0.2.0-00000000")


def test_a_set_that_somebody_has_planted_says_nobody_how_to_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack: a set with a recipe that names a kernel of his own. Before, the head built by it,
    and signed the result."""
    built: list[Profile] = []

    def build(options: BuildOptions, say: object) -> None:
        built.append(options.profile)
        (fill(options.out, "x") / "minos.json").write_text(
            json.dumps({"profile": options.profile.to_json()})
        )

    monkeypatch.setattr(sets, "build", build)
    build_boot(tmp_path, profile="gpu", kernel="linux-image-rt-amd64")
    planted = fill(tmp_path / "boot" / "9.9-planted", "evil")
    recipe = Profile("gpu", str(planted / "vmlinuz"), str(planted))
    (planted / "minos.json").write_text(json.dumps({"profile": recipe.to_json()}))
    said: list[str] = []
    for name in ("gpu", ""):
        build_boot(tmp_path, profile=name, echo=said.append)
    assert {p.kernel for p in built} == {"linux-image-rt-amd64"} and {p.name for p in built} == {
        "gpu"
    }
    assert "the recipe of boot set 9.9-planted is not used: it is not signed" in said


def test_sets_that_were_built_before_sets_were_signed_are_signed_once(tmp_path: Path) -> None:
    old = sets.install_set(tmp_path, fill(tmp_path / ".a", "x")).name
    head = known(tmp_path)
    head.load({})
    head.sign_all()
    assert head.reread() == {} and head.get(old).name == old
    (tmp_path / old / "vmlinuz").write_text("changed")
    head.sign_all()
    assert "vmlinuz was changed" in head.reread()[old], "what is signed is not signed anew"


def test_a_set_that_is_removed_while_all_are_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes, stays = (
        sets.install_set(tmp_path, fill(tmp_path / f".{text}", text)).name for text in ("a", "b")
    )
    read = sets.load

    def removed_first(boot: Path, name: str) -> sets.BootSet:
        if name == goes:
            shutil.rmtree(boot / name)
        return read(boot, name)

    monkeypatch.setattr(sets, "load", removed_first)
    assert [found.name for found in sets.all_of(tmp_path)] == [stays]
