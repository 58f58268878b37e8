"""An etcd that a site has anyhow, over TLS with certificates of its own: heads begin in it below a
prefix, and one that cannot be used is refused with the reason, before anything has changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping

import pytest
import yaml

from layercake.agents import pki
from layercake.features.heads import register
from layercake.heads.member import PROGRAM, Member
from tests.support.several_heads import SiteOfHeads, site_of_heads

pytestmark = pytest.mark.root
PREFIX = "/sites/here/layercake/"
OTHERS = "/sites/there/"


class ForeignEtcd:
    """One member, as a site may run it; its clients show a certificate."""

    def __init__(self, site: SiteOfHeads) -> None:
        self._site = site
        self.files = site.directory / "foreign"
        self.files.mkdir()
        pki.create_authority(self.files / register.AUTHORITY)
        address = site.address("etcd")
        made = register.Register(self.files).add("etcd", "", [address], witness=False)
        for name, text in made.items():
            (self.files / name).write_text(text)
        self.url = f"https://{address}:2379"
        self.member = Member(
            "etcd", self.files / "data", self.url, f"https://{address}:2380", self.files
        )

    @property
    def options(self) -> dict[str, object]:
        """How heads are told of it."""
        return {
            "--store": self.url,
            "--store-ca": self.files / "store-ca.pem",
            "--store-cert": self.files / "store.pem",
            "--store-key": self.files / "store.key",
        }

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What `etcdctl` does there."""
        names = ("--cacert", "store-ca.pem"), ("--cert", "store.pem"), ("--key", "store.key")
        files = [word for option, name in names for word in (option, str(self.files / name))]
        inside = ["ip", "netns", "exec", self._site.namespace, "etcdctl", "--endpoints", self.url]
        return subprocess.run(
            [*inside, *files, *words],
            env={**os.environ, "ETCDCTL_API": "3"},
            capture_output=True,
            text=True,
        )

    def keys(self) -> list[str]:
        """All keys that it has."""
        return self.ctl("get", "", "--prefix", "--keys-only").stdout.split()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteOfHeads]:
    if shutil.which(PROGRAM) is None:
        pytest.skip("there is no etcd: install Debian's etcd-server and etcd-client")
    with site_of_heads(tmp_path_factory.mktemp("foreign")) as made:
        yield made


@pytest.fixture(scope="module")
def foreign(site: SiteOfHeads) -> Iterator[ForeignEtcd]:
    made = ForeignEtcd(site)
    peers = {"etcd": made.member.peer_url}
    inside = ["ip", "netns", "exec", site.namespace, *made.member.command(peers, existing=False)]
    with (made.files / "etcd.log").open("wb") as log:
        process = subprocess.Popen(inside, stdout=log, stderr=log)
    try:
        site.wait("etcd answers", lambda: made.ctl("endpoint", "health").returncode == 0)
        assert made.ctl("put", f"{OTHERS}key", "of another program").returncode == 0
        yield made
    finally:
        process.kill()
        process.wait()


def _begin(
    site: SiteOfHeads, name: str, options: Mapping[str, object], prefix: str
) -> subprocess.CompletedProcess[str]:
    begin = ("heads", "begin", "--data-dir", site.data(name), "--name", name, "--yes")
    words = [word for pair in options.items() for word in pair]
    return site.run(*begin, *words, "--prefix", prefix)


def test_heads_begin_below_a_prefix_and_touch_nothing_else(
    site: SiteOfHeads, foreign: ForeignEtcd
) -> None:
    site.init("head1")
    done = _begin(site, "head1", foreign.options, PREFIX)
    assert done.returncode == 0, done.stderr
    assert not (site.data("head1") / "heads/member.json").exists()
    site.start("serve", "head1")
    site.wait("head1 leads", lambda: site.leads("head1", "head1"))
    shown = site.heads("head1")
    assert [(one["endpoint"], one["trouble"]) for one in shown["members"]] == [(foreign.url, "")]
    keys = foreign.keys()
    assert f"{OTHERS}key" in keys
    assert f"{PREFIX}now/leader" in keys
    assert all(key.startswith(PREFIX) for key in keys if key != f"{OTHERS}key")
    refused = site.run("heads", "invite", "witness1", "--witness", head="head1")
    assert "the store is an etcd of the site's own" in refused.stderr


def test_a_head_that_was_alone_meanwhile_does_not_begin_over_what_it_left(
    site: SiteOfHeads, foreign: ForeignEtcd
) -> None:
    site.kill("head1.serve", signal.SIGTERM)
    site.output("heads", "end", "--data-dir", site.data("head1"), "--yes")
    again = _begin(site, "head1", foreign.options, PREFIX)
    assert again.returncode == 4
    assert f"etcdctl del --prefix {PREFIX}" in again.stderr
    assert foreign.ctl("del", "--prefix", PREFIX).returncode == 0
    again = _begin(site, "head1", foreign.options, PREFIX)
    assert again.returncode == 0, again.stderr
    site.start("serve", "head1")
    site.wait("head1 leads", lambda: site.leads("head1", "head1"))


def _settings(site: SiteOfHeads, name: str) -> object:
    found = yaml.safe_load((site.data(name) / "config.yaml").read_text())
    return found.get("heads", {}).get("name")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"--store": "https://127.7.0.99:2379"}, "Connect"),
        ({"--store-cert": None, "--store-key": None}, "cannot use the certificates"),
        ({"--prefix": OTHERS}, "has keys that begin with /sites/there/"),
        ({"--prefix": ""}, "the prefix is empty"),
    ],
    ids=["nobody there", "no certificate", "taken", "no prefix"],
)
def test_an_etcd_that_cannot_be_used_is_refused_before_anything_has_changed(
    site: SiteOfHeads, foreign: ForeignEtcd, changes: dict[str, str | None], why: str
) -> None:
    if not site.data("head9").exists():
        site.init("head9")
    options = foreign.options | changes
    prefix = str(options.pop("--prefix", "/new/"))
    given = {name: value for name, value in options.items() if value is not None}
    refused = _begin(site, "head9", given, prefix)
    assert refused.returncode not in (0, 1), refused.stdout
    assert why in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not _settings(site, "head9")


def test_an_etcd_that_wants_users_is_refused_with_what_to_do(
    site: SiteOfHeads, foreign: ForeignEtcd
) -> None:
    """Also a role that is limited to the prefix: its gateway knows nobody by a certificate."""
    for words in ("user add root:x", "user grant-role root root", "auth enable"):
        assert foreign.ctl(*words.split()).returncode == 0
    try:
        refused = _begin(site, "head9", foreign.options, "/new/")
    finally:
        done = foreign.ctl("--user", "root:x", "auth", "disable")
    assert done.returncode == 0, done.stderr
    assert "user name is empty" in refused.stderr
    assert "protect it by client certificates instead" in refused.stderr
    assert not _settings(site, "head9")
