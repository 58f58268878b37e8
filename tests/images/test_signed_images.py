"""Images are signed by the head that took them in, and a node that has joined it runs no other:
what was put into the store by somebody else, beside the head, is not started."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from imageapi.node.container.process import alive
from imageapi.node.imageset.layers import Layers, NotSigned
from imageapi.spec.attachment import parse_rbd, parse_verity
from imageapi.spec.container import ContainerSpec
from imageapi.spec.image import ImageSpec, manifest, parse_image
from imageapi.store.store import ImageStore
from layercake.base.signatures import by_key
from layercake.kraken.errors import OperationFailed
from tests.images.test_cluster_images import ATTACH, VERITY
from tests.support.images import Node, open_file, spec_of
from tests.support.namespace import run_as_agent


def raw(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def told(store: ImageStore, name: str) -> ImageSpec:
    """An image as the head's document describes it."""
    image = store.get(name)
    return dataclasses.replace(
        spec_of(store.path(image.digest), name), signature=store.signature(image.digest)
    )


def test_what_a_stranger_put_into_the_store_is_not_started(
    tmp_path: Path, one: Path, two: Path
) -> None:
    """The attack: who can write where the images lie (a file server, a backup that is played back)
    puts a content of his own there, under its right digest, and lets the index say that the name is
    that. Before, nodes ran it."""
    store = ImageStore(tmp_path / "images")
    store.add(one, "app", {"systemd": False})
    good, key = told(store, "app"), base64.b64decode(store.signer.public)
    ImageStore(tmp_path / "his").add(two, "app", {"systemd": False})
    for file in (tmp_path / "his").iterdir():
        if file.name != "signing.key":
            (store.directory / file.name).write_bytes(file.read_bytes())
    evil = told(ImageStore(store.directory), "app")
    assert evil.digest != good.digest and evil.signature, "it is signed, by another key"

    def body(run: Path) -> None:
        node = Node(run)
        node.key = key
        assert node.run(good) == "ACTIVE"
        running = node.images.process_of("app")
        for spec, why in (
            (evil, "wrong"),
            (dataclasses.replace(evil, signature=""), "missing"),
            (dataclasses.replace(evil, signature=good.signature), "wrong"),
            (dataclasses.replace(evil, signature="no base64"), "wrong"),
        ):
            assert node.run(spec) == "ERROR"
            assert f"signature is {why}" in node.last("image.unsigned")[1]
            node.images.clear()
        assert alive(running), "the old image runs on"
        assert not list((run / "blobs").glob(f"{evil.hex}*")), "nothing of it was fetched"
        node.stop()

    run_as_agent(tmp_path / "run", body)


def test_an_unsigned_image_is_not_staged_either_and_a_mounted_one_is_no_way_around(
    tmp_path: Path, one: Path
) -> None:
    store = ImageStore(tmp_path / "images")
    store.add(one, "app", {})
    good = told(store, "app")

    def body(run: Path) -> None:
        layers = Layers(
            run, open_file, lambda name: b"", lambda: base64.b64decode(store.signer.public)
        )
        layers.layer(good, lambda: False)
        with pytest.raises(NotSigned, match="missing"):
            layers.layer(dataclasses.replace(good, signature=""), lambda: False)
        layers.collect(())

    run_as_agent(tmp_path / "run", body)


@pytest.mark.parametrize(
    "changed", [{}, {"root_hash": "cd" * 32}, {"data_blocks": 1}, {"salt": ""}]
)
def test_a_hash_tree_that_the_head_has_not_signed_attaches_nothing(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    """Of an image in a cluster the hash tree is what is believed: it is signed together with the
    digest."""
    key, asked = Ed25519PrivateKey.generate(), list[str]()

    def secret(name: str) -> bytes:
        asked.append(name)
        raise OperationFailed("no cluster here")

    spec = ImageSpec(
        "app",
        f"blake2b:{'a' * 64}",
        5000,
        "http://h/x",
        ContainerSpec(),
        parse_rbd(ATTACH),
        parse_verity(VERITY),
    )
    signed = dataclasses.replace(
        spec,
        signature=base64.b64encode(key.sign(spec.manifest.encode())).decode(),
        verity=parse_verity({**VERITY, **changed}),
    )
    layers = Layers(tmp_path, open_file, secret, lambda: raw(key))
    with pytest.raises(NotSigned if changed else OperationFailed):
        layers.layer(signed, lambda: False)
    assert bool(asked) is not bool(changed), (
        "the cluster's key is asked for when the signature is right, and only then"
    )


def test_a_node_reads_the_signature_that_the_store_has_made(tmp_path: Path, one: Path) -> None:
    store = ImageStore(tmp_path)
    image = store.add(one, "app", {})
    key = base64.b64decode(store.signer.public)
    text = manifest(image.digest, image.size, {})
    assert (
        by_key(key, text, store.signature(image.digest)) and json.loads(text)["size"] == image.size
    )
    assert not by_key(key, text + " ", store.signature(image.digest)) and not by_key(
        key[:-1], text, store.signature(image.digest)
    )
    assert not by_key(raw(Ed25519PrivateKey.generate()), text, store.signature(image.digest))
    spec = told(store, "app")
    assert parse_image(spec.to_wire()).signature == spec.signature and spec == dataclasses.replace(
        spec, signature=""
    )
    assert ImageStore(tmp_path).signature(image.digest) == store.signature(image.digest), (
        "it is on disk"
    )
    store.remove("app")
    assert store.signature(image.digest) == ""


def test_what_an_older_head_took_in_is_signed_once(tmp_path: Path, one: Path, two: Path) -> None:
    store = ImageStore(tmp_path)
    store.add(one, "app", {})
    store.add(two, "app", {})
    (tmp_path / "signatures.json").unlink()
    found = ImageStore(tmp_path)
    with pytest.raises(OperationFailed, match="has not signed"):
        found.verify("app")
    found.sign_all({})
    found.verify("app")
    assert found.signature(found.get("app").history[0].digest), (
        "what a name pointed to before, too: nodes may want it"
    )
