"""A machine that runs images out of a real Ceph by its kernel's own client, and each way in which
that can go wrong.

The machine, minOS, the cluster and the store are real; the head is tests/support/fake_head.py,
which wants what a test says. Each test leaves the machine well: another one may find any image
running.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rados
import rbd
from cephrun import POOL, Ceph
from guest import ADDRESS, HEAD, MAC, Guest
from patience import patience
from smallimages import build_plain_image

from imageapi.store.rbdstore import Cluster, RbdContent, read_keyring
from imageapi.store.store import ImageStore
from minos.build import BuildOptions, append_files, build
from tests.support.fake_head import UP, FakeHead

pytestmark = [pytest.mark.vm, pytest.mark.root, pytest.mark.waits]

CACHE = Path.home() / ".cache/layercake"
SECRET = f"ceph-{POOL}"
SCRIPT = """#!/bin/sh
trap 'exit 0' TERM
echo "@MARKER@ config $(cat /sys/bus/rbd/devices/*/config_info)"
echo "@MARKER@ keys $(cat /proc/keys)"
count() { n=0; for d in $1; do [ -e "$d" ] && n=$((n + 1)); done; }
while :; do
    count "/sys/bus/rbd/devices/*"; m=$n; count "/sys/block/dm-*"
    echo "@MARKER@ runs, devices $m dm $n"
    sleep 1 & wait $!
done
"""


class Site:
    """The machine, the cluster, the head, and three images."""

    def __init__(self, directory: Path, guest: Guest, ceph: Ceph) -> None:
        self.guest, self.ceph = guest, ceph
        store = ImageStore(
            directory / "store",
            content=RbdContent(
                directory / "store",
                Cluster(
                    str(ceph.conf),
                    str(ceph.keyring("layercake")),
                    POOL,
                    node_keyring=str(ceph.keyring("node")),
                ),
            ),
        )
        self.images: dict[str, dict[str, Any]] = {}
        for name in ("one", "two", "three", "four"):
            path = build_plain_image(directory / name, name, script=SCRIPT)
            with guest.inside():
                image = store.add(path, name, {})
            found = store.attachment(image.digest)
            assert found is not None
            self.images[name] = {
                "name": name,
                "digest": image.digest,
                "size": image.size,
                "url": "http://10.99.0.1:9/none",
                "container": image.container.to_wire(),
                "attach": found.attach,
                "verity": found.verity,
            }
        with guest.inside():
            self.head = FakeHead(
                directory / "pki", str(uuid.uuid4()), public=HEAD, address=HEAD, hello_s=2.0
            )
        self.key = self.head.secrets[SECRET] = store.secret(SECRET)

    def boot(self, directory: Path) -> None:
        """Starts the machine with nothing wanted but to be up."""
        built = build(BuildOptions(directory / "minos", CACHE, compression="none"))
        image = directory / "minos.img"
        append_files(built.image, {"etc/layercake/ca.pem": self.head.authority.read_bytes()}, image)
        words = {
            "node": self.head.node,
            "name": "n1",
            "mac": MAC,
            "ip": f"{ADDRESS}/24",
            "head": self.head.url,
            "sync": self.head.sync,
            "token": "good-token",
        }
        self.head.document = {
            "revision": 1,
            "goal": {**UP, "image": "IDLE"},
            "images": [],
            "requests": [],
        }
        self.guest.start(built.vmlinuz, image, words)
        self.head.wait(lambda: self.head.state().get("image") == "IDLE", 120)

    def want(self, *images: dict[str, Any]) -> int:
        """Wants images; where the events stood before."""
        before = len(self.head.events)
        self.head.want(list(images))
        return before

    def reach(self, *images: dict[str, Any], seconds: float = 60) -> None:
        """Wants images and waits until they run."""
        self.want(*images)
        self.active("ACTIVE" if images else "IDLE", seconds)

    def active(self, state: str = "ACTIVE", seconds: float = 60) -> None:
        head = self.head
        head.wait(
            lambda: (
                head.hellos[-1].cfg_revision == head.document["revision"]
                and head.state()["image"] == state
            ),
            seconds,
        )

    def told(self, since: int, kind: str, seconds: float = 60) -> str:
        """The text of the first such event after a mark."""

        def found() -> list[str]:
            return [e["text"] for e in self.head.events[since:] if e["kind"] == kind]

        self.head.wait(found, seconds)
        return found()[0]

    def says(self, name: str, text: str, seconds: float = 20) -> str:
        """Waits until an image's last line is this; all that it printed."""
        end = time.monotonic() + patience(seconds)
        while not (found := self.logs(name)).rstrip().endswith(text):
            assert time.monotonic() < end, found
            time.sleep(0.2)
        return found

    def logs(self, name: str, lines: int = 50) -> str:
        """What an image's container printed."""
        number = time.monotonic_ns()
        self.head.ask(number, kind="logs", container=name, lines=lines)
        self.head.wait(lambda: number in self.head.answers, 30)
        assert self.head.answers[number]["ok"], self.head.answers[number]
        return str(self.head.answers[number]["text"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("node")
    with Guest(directory / "guest") as guest, Ceph(directory / "ceph", HEAD, guest.enter) as ceph:
        found = Site(directory, guest, ceph)
        try:
            found.boot(directory)
            yield found
        finally:
            found.head.close()
            print(guest.console()[-6000:])


def test_an_image_runs_from_the_cluster_and_its_key_is_nowhere_to_be_seen(site: Site) -> None:
    site.reach(site.images["one"])
    text = site.says("one", "one runs, devices 1 dm 1")
    assert "cat: read error: Operation not permitted" in text or "key=<hidden>" in text, (
        "the container may not even look"
    )
    assert site.key not in text + site.guest.console() + repr(site.head.events) + repr(
        site.head.document
    )
    keys = next(part for part in text.split("one keys")[1:])
    assert "ceph" not in keys.partition("one runs")[0], (
        "the key left the kernel's keyring with the child that used it"
    )


def test_a_roll_leaves_nothing_of_the_old_image(site: Site) -> None:
    site.reach(site.images["one"])
    since = site.want(site.images["two"])
    assert "rolled from one to two" in site.told(since, "image.rolled")
    site.active()
    site.says("two", "two runs, devices 1 dm 1")


def test_a_wrong_key_is_told_and_what_runs_goes_on(site: Site) -> None:
    site.reach(site.images["two"])
    site.head.secrets[SECRET] = read_keyring(site.ceph.keyring("stranger"))["stranger"]
    try:
        since = site.want(site.images["one"])
        text = site.told(since, "image.error")
        assert "refuses the key of client.node" in text
        assert site.head.secrets[SECRET] not in text
        site.says("two", "two runs, devices 1 dm 1")
    finally:
        site.head.secrets[SECRET] = site.key
    site.reach(site.images["two"])


def test_a_secret_that_the_head_does_not_give_is_told(site: Site) -> None:
    site.reach()
    other = {**site.images["one"], "attach": {**site.images["one"]["attach"], "secret": "other"}}
    assert "cannot get secret other" in site.told(site.want(other), "image.error")
    site.reach(site.images["one"])


def test_a_missing_snapshot_is_told(site: Site) -> None:
    site.reach(site.images["one"])
    lost = {**site.images["two"], "attach": {**site.images["two"]["attach"], "snapshot": "v9"}}
    assert "there is no such image or snapshot" in site.told(site.want(lost), "image.error")
    site.says("one", "one runs, devices 1 dm 1")
    site.reach(site.images["one"])


def alter(site: Site, name: str, offset: int) -> None:
    """Changes an image's content as one could who may write to the pool: the names are the same
    afterwards."""
    with site.guest.inside():
        cluster = rados.Rados(
            conffile=str(site.ceph.conf),
            name="client.admin",
            conf={"keyring": str(site.ceph.keyring("admin"))},
        )
        cluster.connect(timeout=60)
    try:
        ioctx = cluster.open_ioctx(POOL)
        with rbd.Image(ioctx, site.images[name]["attach"]["image"]) as image:
            image.unprotect_snap("v1")
            image.remove_snap("v1")
            size = len(range(offset, image.size(), 4096))
            image.write(bytes(255 - b for b in image.read(offset, min(4096, size * 4096))), offset)
            image.create_snap("v1")
            image.protect_snap("v1")
        ioctx.close()
    finally:
        cluster.shutdown()


def test_altered_content_never_runs_and_ends_in_a_readable_state(site: Site) -> None:
    site.reach(site.images["one"])
    alter(site, "three", 0)
    since = site.want(site.images["three"])
    text = site.told(since, "image.digest-mismatch")
    assert "was altered: a block of it is not what the hash tree says" in text
    assert "image.started" not in [e["kind"] for e in site.head.events[since:]]
    site.says("one", "one runs, devices 1 dm 1")
    site.head.wait(lambda: site.head.state()["image"] == "FATAL", 60)
    assert "was altered" in site.told(since, "image.fatal")
    site.reach(site.images["one"])


def test_content_that_is_altered_further_back_is_noticed_when_it_is_read(site: Site) -> None:
    for block in range(1, 40):
        alter(site, "four", block * 4096)
    since = site.want(site.images["four"])
    text = site.told(since, "container.exited")
    assert "its content was altered where it is stored" in text
    assert "Input/output error" in text, "the program was told that its file cannot be read"
    site.reach(site.images["one"])


def test_osd_stopped_during_a_roll_and_started_again(site: Site) -> None:
    site.reach(site.images["one"])
    before = len(site.head.events)
    site.ceph.stop_osd()
    try:
        site.want(site.images["two"])
        site.head.wait(
            lambda: site.head.hellos[-1].cfg_revision == site.head.document["revision"], 60
        )
        time.sleep(4)
        assert site.head.state()["image"] != "ACTIVE"
    finally:
        site.ceph.start_osd()
    site.active()
    assert "rolled from one to two" in site.told(before, "image.rolled")
    assert "container.exited" not in [e["kind"] for e in site.head.events[before:]]


def test_monitor_away_is_told_in_bounded_time_and_the_image_starts_when_it_is_back(
    site: Site,
) -> None:
    site.reach()
    site.ceph.stop_mon()
    try:
        start = time.monotonic()
        since = site.want(site.images["two"])
        assert "the Ceph cluster does not answer (monitors 10.99.0.1:6789)" in site.told(
            since, "image.error"
        )
        assert time.monotonic() - start < patience(35)
    finally:
        site.ceph.start_mon()
    site.active(seconds=90)
    site.says("two", "two runs, devices 1 dm 1")
