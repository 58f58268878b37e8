"""A site becomes one of several heads, gets a witness and further heads, loses one and replaces it,
and is one with one head again: with real processes and a real etcd over TLS."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from layercake.fleet.persistence import changes
from layercake.head.site_settings import OWN
from layercake.heads.files import OWN as FILES_OF_A_HEAD
from layercake.heads.files import is_shared
from layercake.heads.member import PROGRAM
from tests.support.several_heads import SiteOfHeads, site_of_heads

pytestmark = pytest.mark.root
NODES = "nodes:\n  n1: {mac: '02:00:00:00:00:01', ip: 10.0.1.1}\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiteOfHeads]:
    """Two heads and a witness; head1 leads."""
    if shutil.which(PROGRAM) is None:
        pytest.skip("there is no etcd: install Debian's etcd-server and etcd-client")
    directory = tmp_path_factory.mktemp("heads")
    (directory / "nodes.yaml").write_text(NODES)
    with site_of_heads(directory) as made:
        made.begin("head1")
        made.output("apply", "--yes", "--no-wait", directory / "nodes.yaml", head="head1")
        refused = made.run("heads", "invite", "head2", head="head1")
        assert refused.returncode == 4
        assert "with two votes the loss of either machine stops both" in refused.stderr
        made.witness("head1", "witness1")
        made.join("head1", "head2")
        yield made


def _shared(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    names = {str(path.relative_to(directory)): path for path in paths}
    found = {name: path.read_bytes() for name, path in names.items() if is_shared(name)}
    return {name: data for name, data in found.items() if not name.startswith("inventory.git/")}


def _config(site: SiteOfHeads, name: str) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load((site.data(name) / "config.yaml").read_text())
    return found


def test_a_further_head_has_all_that_it_needs(site: SiteOfHeads) -> None:
    first, second = _shared(site.data("head1")), _shared(site.data("head2"))
    assert second == first
    assert {"pki/ca.key", "admin.token", "heads/store-ca/ca.key"} <= {*first}
    own = _config(site, "head2")
    assert own["address"] == site.address("head2")
    assert {k: v for k, v in own.items() if k not in OWN} == {
        k: v for k, v in _config(site, "head1").items() if k not in OWN
    }
    server = [(site.data(head) / "pki/server.key").read_bytes() for head in ("head1", "head2")]
    assert server[0] != server[1]


def test_a_witness_has_no_secret_of_the_site(site: SiteOfHeads) -> None:
    key = (site.data("head1") / "heads/site.key").read_bytes()
    files = [p for p in site.data("witness1").rglob("*") if p.is_file()]
    names = {p.name for p in files if "store" not in p.parent.parts[-2:]}
    assert names >= {"store-ca.pem", "store.pem", "store.key"}
    assert "site.key" not in names and "ca.key" not in names
    assert not any(key in p.read_bytes() for p in files)


def test_an_image_is_on_each_head_when_it_was_added(site: SiteOfHeads) -> None:
    file = site.directory / "image.squashfs"
    file.write_bytes(b"hsqs" + bytes(range(256)) * 4096)
    site.output("image", "add", "one", file, head="head1")
    copied = site.data("head2") / "images"
    digest = hashlib.blake2b(file.read_bytes(), digest_size=32).hexdigest()
    assert (copied / f"{digest}.squashfs").read_bytes() == file.read_bytes()
    assert b'"one"' in (copied / "index.json").read_bytes()
    assert (copied / "signing.key").read_bytes() == (
        site.data("head1") / "images/signing.key"
    ).read_bytes()


def test_settings_of_the_site_reach_each_head(site: SiteOfHeads) -> None:
    config = site.data("head1") / "config.yaml"
    config.write_text(config.read_text().replace("log_events: warning", "") + "log_events: error\n")
    site.wait("head2 has the setting", lambda: _config(site, "head2").get("log_events") == "error")
    assert _config(site, "head2")["address"] == site.address("head2")
    site.wait("head2 follows again", lambda: site.has_all("head1", "head2"))


def test_each_file_of_a_head_is_shared_or_its_own(site: SiteOfHeads) -> None:
    for head in ("head1", "head2"):
        directory = site.data(head)
        files = [p for p in directory.rglob("*") if p.is_file() and not p.name.startswith(".")]
        names = [str(path.relative_to(directory)) for path in files]
        assert len(names) > 20
        nobodys = [
            name
            for name in names
            if not is_shared(name)
            and not any(name == own or name.startswith(f"{own}/") for own in FILES_OF_A_HEAD)
        ]
        assert not nobodys


def test_a_backup_of_one_of_several_is_a_head_that_is_alone(site: SiteOfHeads) -> None:
    file = site.directory / "head.backup"
    passphrase = site.directory / "passphrase"
    passphrase.write_text("a long passphrase")
    words = ("--passphrase-file", passphrase, "--data-dir")
    site.output("backup", file, *words, site.data("head2"))
    restored = site.data("restored")
    site.output("restore", file, *words, restored)
    assert "heads" not in _config(site, "restored")
    with contextlib.closing(sqlite3.connect(restored / "layercake.db")) as db:
        assert changes.place(db) == (0, "")
    with contextlib.closing(sqlite3.connect(site.data("head2") / "layercake.db")) as db:
        assert changes.place(db) != (0, "")


def test_an_invitation_is_good_once_and_for_what_it_is_for(site: SiteOfHeads) -> None:
    words = site.invite("head1", "head9", "--third-head")
    own = ("--data-dir", site.data("head9"), "--address", "127.7.0.9")
    other = site.run("witness", *own, *words)
    assert "no such invitation" in other.stderr
    bad = site.run("witness", *own, "--join", words[1], "--token", f"{'0' * 48}.{'0' * 64}")
    assert "it is not the head that has invited this machine" in bad.stderr
    again = site.invite("head1", "head9", "--witness")
    revoked = site.run("init", *own, "--interface", "lo", *words)
    assert "no such invitation" in revoked.stderr
    assert not (site.data("head9") / "config.yaml").exists()
    site.output("witness", *own, *again)
    used = site.run("witness", "--data-dir", site.data("head8"), *again)
    assert "no such invitation" in used.stderr
    site.output("heads", "remove", "head9", "--yes", head="head1")


def test_a_follower_sends_who_joins_to_the_leader(site: SiteOfHeads) -> None:
    words = site.invite("head1", "head7", "--witness")
    own = ("--data-dir", site.data("head7"), "--address", "127.7.0.7")
    url = f"https://{site.address('head2')}:8443"
    site.output("witness", *own, "--join", url, *words[2:])
    site.output("heads", "remove", "head7", "--yes", head="head1")


_ASK = """
import http.client, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[2] + "/store-ca.pem")
if sys.argv[3:]:
    context.load_cert_chain(sys.argv[3] + "/store.pem", sys.argv[3] + "/store.key")
link = http.client.HTTPSConnection(sys.argv[1], 2379, timeout=10, context=context)
link.request("POST", "/v3/maintenance/status", "{}")
print(link.getresponse().status)
"""


def _ask_store(site: SiteOfHeads, member: str, *certificate: Path) -> str:
    """What a member of the store answers to who shows this certificate, or none."""
    ca = site.data(member) / "heads"
    inside = ["ip", "netns", "exec", site.namespace, sys.executable]
    words = [site.address(member), str(ca), *map(str, certificate)]
    done = subprocess.run(
        [*inside, "-c", _ASK, *words], capture_output=True, text=True, check=False
    )
    return f"{done.stdout}{done.stderr}".strip().splitlines()[-1]


def test_the_store_answers_nobody_without_a_certificate(site: SiteOfHeads) -> None:
    assert _ask_store(site, "head1", site.data("head2") / "heads") == "200"
    assert "200" not in _ask_store(site, "head1")


def test_a_head_that_leads_or_is_unknown_is_not_removed(site: SiteOfHeads) -> None:
    assert "it leads" in site.run("heads", "remove", "head1", "--yes", head="head1").stderr
    assert "there are head1, head2, witness1" in (
        site.run("heads", "remove", "head5", "--yes", head="head1").stderr
    )


def test_no_head_is_forced_to_lead_while_one_leads(site: SiteOfHeads) -> None:
    for asked in ("head1", "head2"):
        refused = site.run("heads", "promote", "head2", "--force", "--yes", head=asked)
        assert refused.returncode == 4
        assert "leads" in refused.stderr
    assert site.leads("head1", "head2")


def test_a_retired_head_leaves_the_lead_until_it_is_promoted(site: SiteOfHeads) -> None:
    site.output("heads", "retire", "head1", "--yes", head="head1")
    site.wait("head2 leads", lambda: site.leads("head2", "head2"))
    refused = site.run("heads", "retire", "head2", "--yes", head="head2")
    assert "no other head is there that may lead" in refused.stderr
    site.wait("head1 follows", lambda: site.has_all("head2", "head1"))
    site.output("heads", "promote", "head1", "--yes", head="head2")
    site.wait("head1 leads", lambda: site.leads("head1", "head1"))
    assert site.heads("head1")["retired"] == []
    site.wait("head2 follows", lambda: site.has_all("head1", "head2"))


def test_a_dead_head_is_replaced(site: SiteOfHeads) -> None:
    site.kill("head1.serve")
    site.kill("head1.store")
    site.wait("head2 leads", lambda: site.leads("head2", "head2"))
    assert [n["name"] for n in site.document("node", "list", head="head2")["nodes"]] == ["n1"]
    site.output("heads", "remove", "head1", "--yes", head="head2")
    assert "200" not in _ask_store(site, "head2", site.data("head1") / "heads")
    site.join("head2", "head3")
    assert _shared(site.data("head3")) == _shared(site.data("head2"))
    kept = site.data("head3") / "heads/endpoints.json"
    site.wait(
        "head3 knows all members", lambda: kept.exists() and len(json.loads(kept.read_text())) == 3
    )
    site.start("store", "head1")
    site.wait("the removed member ends", lambda: not site.runs("head1.store"))


def test_the_last_head_is_alone_again(site: SiteOfHeads) -> None:
    refused = site.run("heads", "end", "--data-dir", site.data("head2"), "--yes")
    assert "another head is serving it" in refused.stderr
    for process in ("head3.serve", "head2.serve"):
        site.kill(process, signal.SIGTERM)
    site.output("heads", "end", "--data-dir", site.data("head2"), "--yes")
    site.start("serve", "head2")
    site.wait("it serves", lambda: site.socket("head2").exists())
    assert [n["name"] for n in site.document("node", "list", head="head2")["nodes"]] == ["n1"]
    assert site.heads("head2")["heads"] == []
