"""Certificates that renew themselves, a head and nodes that each show one, and an authority that is
replaced under running nodes.

A real head with its API, and real agents in namespaces of their own; files by the head's own code.
"""

from __future__ import annotations

import base64
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "vm-testbed"))

from hostnode import HostNode
from hostsite import HostSite
from smallimages import build_plain_image

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.base.files import write_atomic
from layercake.kraken.errors import InputError
from layercake.kraken.wire import TO_NODE, bearer
from minos.agent.head_link.trust import mark

NODE = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    pki.create(tmp_path, "10.99.0.1")
    return Authority(tmp_path)


def certificate(pem: bytes | str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.encode() if isinstance(pem, str) else pem)


def on_day(monkeypatch: pytest.MonkeyPatch, number: float) -> None:
    """It is so many days later."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=number)
    shifted = SimpleNamespace(
        datetime=SimpleNamespace(now=lambda zone: later),
        UTC=datetime.UTC,
        timedelta=datetime.timedelta,
    )
    monkeypatch.setattr(pki, "datetime", shifted)


@pytest.mark.parametrize("wanted", [1, 60, 90])
def test_certificates_live_for_as_long_as_the_settings_say(tmp_path: Path, wanted: int) -> None:
    """From now on, and not from the time before, to which they are dated back for slow clocks."""
    pki.create(tmp_path, "10.99.0.1")
    (tmp_path / "server.pem").unlink()
    authority = Authority(tmp_path, wanted)
    assert authority.renew("10.99.0.1")
    issued = authority.issue(NODE, 1)
    client = authority.issue_client(pki.client_name("0123abcd"))
    assert issued is not None and client is not None
    now = datetime.datetime.now(datetime.UTC)
    for pem in ((tmp_path / "server.pem").read_bytes(), issued["cert"], client["cert"]):
        found = certificate(pem)
        left = (found.not_valid_after_utc - now).total_seconds() / 86400
        assert left == pytest.approx(wanted, abs=0.01)
        assert found.not_valid_before_utc < now - datetime.timedelta(days=1)
    assert authority.ages()[0].days == wanted


@pytest.mark.parametrize(
    ("made_for", "wanted", "day", "renewed"),
    [
        (60, 6, 0, True),
        (6, 60, 3, False),
        (6, 60, 5, True),
        (90, 90, 59, False),
        (90, 90, 61, True),
    ],
)
def test_a_certificate_is_renewed_after_two_thirds_of_its_own_life(
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made_for: int,
    wanted: int,
    day: int,
    renewed: bool,
) -> None:
    (tmp_path / "server.pem").unlink()
    Authority(tmp_path, made_for).renew("10.99.0.1")
    on_day(monkeypatch, day)
    assert Authority(tmp_path, wanted).renew("10.99.0.1") is renewed


def test_a_certificate_is_for_what_its_owner_does(authority: Authority) -> None:
    """Head and nodes are both ends of connections; who uses the API is a client."""
    server = ExtendedKeyUsageOID.SERVER_AUTH
    client = ExtendedKeyUsageOID.CLIENT_AUTH
    for issued, expected in (
        (authority.issue(NODE, 1), {server, client}),
        (authority.issue_client("x"), {client}),
    ):
        assert issued is not None
        extensions = certificate(issued["cert"]).extensions
        assert set(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == expected
        usage = extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical and usage.value.digital_signature and not usage.value.key_cert_sign


def test_the_heads_certificate_is_renewed_in_time(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    authority.changed = lambda: told.append(1)
    for day, renewed in (
        (0, False),
        (39, False),
        (41, True),
        (42, False),
        (500, True),
        (-400, True),
    ):
        on_day(monkeypatch, day)
        before = (tmp_path / "server.pem").read_bytes()
        assert authority.renew("10.99.0.1") is renewed, day
        assert ((tmp_path / "server.pem").read_bytes() != before) is renewed
        assert [a.what for a in authority.ages()] == ["head", "authority"] and 0 < authority.ages()[
            0
        ].days <= 60
    assert len(told) == 3
    assert authority.renew("10.99.0.2"), "another address"
    (tmp_path / "server.pem").write_text("nonsense")
    assert authority.renew("10.99.0.2"), "one that is damaged"


def test_one_of_ten_years_from_an_older_head_is_replaced(
    authority: Authority, tmp_path: Path
) -> None:
    assert Authority(tmp_path, 3650).renew("10.99.0.3")
    assert authority.renew("10.99.0.3") and not authority.renew("10.99.0.3")


def test_a_replacement_is_begun_once_and_can_be_finished_after_a_crash(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (tmp_path / "ca.pem").read_bytes()
    authority.begin()
    assert (tmp_path / "ca.pem").read_bytes().startswith(old), (
        "the acting one is trusted, and is the first"
    )
    with pytest.raises(InputError, match="begun already"):
        authority.begin()

    def dies(path: Path, *rest: Any, **more: Any) -> None:
        if path.name == "ca.pem":
            raise OSError("the power is gone")
        write_atomic(path, *rest, **more)

    monkeypatch.setattr("layercake.agents.pki.write_atomic", dies)
    with pytest.raises(OSError, match="power"):
        authority.finish("10.99.0.1")
    monkeypatch.undo()
    again = Authority(tmp_path)
    again.finish("10.99.0.1")
    assert old not in (tmp_path / "ca.pem").read_bytes() and not again.changing
    head = certificate((tmp_path / "server.pem").read_bytes())
    head.verify_directly_issued_by(certificate((tmp_path / "ca.pem").read_bytes()))
    with pytest.raises(InputError, match="not being replaced"):
        again.finish("10.99.0.1")


# -- under running nodes


@pytest.fixture(scope="module")
def site() -> Iterator[HostSite]:
    with tempfile.TemporaryDirectory(prefix="layercake-authority-") as scratch:
        directory = Path(scratch)
        found = HostSite(
            directory / "site", 2, {"one": build_plain_image(directory / "one.squashfs", "one")}
        )
        try:
            found.up()
            found.wait(
                "both serve", lambda: all(exec_says(found, n) == "well" for n in found.nodes), 60
            )
            yield found
        finally:
            found.down()


def session(node: HostNode) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        node.inside(node.directory / "run/session.json").read_bytes()
    )
    return found


def asks(site: HostSite, node: HostNode, *shown: str, path: str = "desired", to: str = "") -> int:
    """The head's answer to a request with a node's bearer, and with the certificate in these files
    if there are any."""
    mine = session(node)
    header = bearer(
        base64.b64decode(mine["key"]),
        bytes.fromhex(mine["node"].replace("-", "")),
        mine["session"],
        *((TO_NODE,) if to else ()),
    )
    url = to or f"https://{site.namespace.address}:8443/node/v1/{path}"
    done = subprocess.run(
        [
            "nsenter",
            f"--net=/run/netns/{site.namespace.name}",
            "curl",
            "-sk",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code}",
            "-H",
            f"Authorization: {header}",
            *(("--cert", shown[0], "--key", shown[1]) if shown else ()),
            url,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return int(done.stdout or 0)


def kept(node: HostNode, directory: Path) -> tuple[str, str]:
    """A node's certificate and key, in files."""
    mine = session(node)["tls"]
    for name in ("cert", "key"):
        (directory / f"{node.name}.{name}").write_text(mine[name])
    return str(directory / f"{node.name}.cert"), str(directory / f"{node.name}.key")


@pytest.mark.root
def test_a_bearer_without_the_nodes_own_certificate_is_worth_nothing(
    site: HostSite, tmp_path: Path
) -> None:
    first, second = site.nodes
    assert asks(site, first) == 401
    assert asks(site, first, *kept(second, tmp_path)) == 401, "another node's"
    assert asks(site, first, *kept(first, tmp_path)) == 200


@pytest.mark.root
def test_a_node_serves_the_head_and_no_other_node(site: HostSite, tmp_path: Path) -> None:
    first, second = site.nodes
    found = subprocess.run(
        ["ip", "netns", "exec", first.namespace, "ss", "-Hltn"],
        capture_output=True,
        text=True,
        check=True,
    )
    at = f"https://{first.ip}:{found.stdout.split()[3].rpartition(':')[2]}/v1/status"
    assert asks(site, first, to=at) == 0, "who shows nothing is not spoken with"
    assert asks(site, first, *kept(second, tmp_path), to=at) == 401
    head = site.data / "pki"
    assert asks(site, first, str(head / "server.pem"), str(head / "server.key"), to=at) == 200


@pytest.mark.root
def test_the_authority_is_replaced_and_no_agent_is_restarted(
    site: HostSite, tmp_path: Path
) -> None:
    before = {n.name: (n.agent, n.containers(), session(n)["session"]) for n in site.nodes}
    old = (site.data / "pki/ca.pem").read_text()
    stolen = kept(site.nodes[0], tmp_path)
    site.api("POST", "/v1/authority/rotate", {"by": "ann"})
    site.wait(
        "all nodes know the next one", lambda: not site.api("GET", "/v1/authority")["nodes"], 120
    )
    for node in site.nodes:
        assert mark(node.inside(node.directory / "run/ca.pem")) == Authority(site.data / "pki").mark
        assert session(node)["certificate"] == 2
        assert exec_says(site, node) == "well"
    site.api("POST", "/v1/authority/finish", {"by": "ann"})
    trusted = (site.data / "pki/ca.pem").read_text()
    assert old not in trusted
    site.wait(
        "all nodes have taken that over",
        lambda: all(
            n.inside(n.directory / "run/ca.pem").read_text() == trusted for n in site.nodes
        ),
        120,
    )
    assert {n.name: (n.agent, n.containers(), session(n)["session"]) for n in site.nodes} == before
    assert all(exec_says(site, node) == "well" for node in site.nodes)
    assert asks(site, site.nodes[0], *stolen) != 200, (
        "what the old authority signed is worth nothing"
    )
    site.wait(
        "all are well", lambda: all(n["status"] == "converged" for n in site.states().values()), 60
    )


def exec_says(site: HostSite, node: HostNode) -> str:
    done = subprocess.run(
        [
            "curl",
            "-s",
            "--unix-socket",
            str(site.socket),
            "-d",
            json.dumps({"command": ["echo", "well"]}),
            f"http://head/v1/nodes/{node.name}/exec",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return (
        b"".join(base64.b64decode(line["out"]) for line in lines if "out" in line).decode().strip()
    )


@pytest.mark.root
def test_a_revoked_node_is_out_and_left_alone_until_a_person_clears_it(
    site: HostSite, tmp_path: Path
) -> None:
    node = site.nodes[1]
    shown, containers = kept(node, tmp_path), node.containers()
    assert asks(site, node, *shown) == 200
    site.api("POST", "/v1/nodes/revoke", {"range": node.name, "by": "ann"})
    assert asks(site, node, *shown) == 401
    site.wait("it is shown", lambda: site.states()[node.name]["status"] == "quarantined", 30)
    assert "were revoked by root for ann" in site.states()[node.name]["status_text"]
    assert node.containers() == containers, "what runs there goes on"
    site.never("it comes back", lambda: site.states()[node.name]["status"] != "quarantined", 5)
