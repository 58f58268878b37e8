"""People by OpenID Connect: with a real provider, and with tokens that an attacker would make."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import re
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from layercake.agents import pki
from layercake.features.access.audit import Audit
from layercake.features.access.people import KEEP_S, REFRESH_S, Grant, OidcSettings, People
from layercake.head import settings as head_settings
from layercake.kraken.errors import InputError, OperationFailed, Refused, Unreachable
from layercake.moduleapi.module import Role
from tests.access.conftest import OTHER, OWN, rack
from tests.cli.test_real_api import free_port
from tests.support.api import served
from tests.support.clock import FakeClock

HERE = Path(__file__).parent
GRANTS = {
    "staff": Grant(role="admin", exec=True),
    "physics": Grant(role="operator", groups=["physics"]),
}


def settings(port: int, directory: Path, **changes: Any) -> OidcSettings:
    ca = str(directory / "pki" / "ca.pem")
    return OidcSettings(
        **{"issuer": f"https://127.0.0.1:{port}", "ca": ca, "grants": GRANTS, **changes}
    )


# -- a real provider


async def id_token(issuer: str, ca: Path, person: str) -> str:
    """What a person gets who logs in with a browser: the authorization code flow with PKCE (RFC
    7636)."""
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "client_id": "layercake",
        "response_type": "code",
        "redirect_uri": "http://127.0.0.1/done",
        "scope": "openid",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    tls = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=ca))
    async with aiohttp.ClientSession(
        connector=tls, cookie_jar=aiohttp.CookieJar(unsafe=True)
    ) as browser:
        place, form = f"{issuer}/auth", None
        for _ in range(12):
            method, query = ("POST" if form else "GET"), asked if place.endswith("/auth") else {}
            async with browser.request(
                method, place, params=query, data=form, allow_redirects=False
            ) as answer:
                page, form = await answer.text(), None
                if answer.status in (302, 303):
                    place = str(answer.headers["Location"])
                    place = place if place.startswith("http") else issuer + place
                else:
                    prompt = re.search(r'name="prompt" value="(\w+)"', page)
                    assert prompt, page
                    form = {"prompt": prompt[1], "login": person, "password": "any"}
            if place.startswith("http://127.0.0.1/done"):
                break
        code = parse_qs(urlsplit(place).query)["code"][0]
        async with browser.post(
            f"{issuer}/token",
            data={
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": "http://127.0.0.1/done",
                "client_id": "layercake",
                "code_verifier": verifier,
            },
        ) as answer:
            return str((await answer.json())["id_token"])


@asynccontextmanager
async def provider(directory: Path) -> AsyncIterator[int]:
    """Node's oidc-provider, over TLS on a port of loopback."""
    assert (HERE / "provider" / "node_modules").exists(), (
        "run `make test`, which fetches what it needs"
    )
    port = free_port()
    made = await asyncio.create_subprocess_exec(
        "node",
        "main.js",
        str(port),
        str(directory / "pki" / "server.pem"),
        str(directory / "pki" / "server.key"),
        cwd=HERE / "provider",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert (
            made.stdout is not None
            and (await asyncio.wait_for(made.stdout.readline(), 60)) == b"ready\n"
        )
        yield port
    finally:
        made.kill()
        await made.wait()


async def test_people_of_a_real_provider_may_what_their_groups_may(tmp_path: Path) -> None:
    pki.create(tmp_path / "pki", "127.0.0.1")
    async with provider(tmp_path) as port:
        issuer, ca = f"https://127.0.0.1:{port}", tmp_path / "pki" / "ca.pem"
        async with (
            rack(tmp_path, oidc=settings(port, tmp_path)) as world,
            served(world.head, local=False) as api,
        ):
            world.clock.now = time.time()

            async def status(person: str, method: str, path: str, body: Any = None) -> int:
                headers = {"Authorization": f"Bearer {await id_token(issuer, ca, person)}"}
                async with api.request(method, path, json=body, headers=headers) as answer:
                    return int(answer.status)

            assert await status("ann.staff", "GET", "/v1/tokens") == 200
            assert await status("bob.physics", "GET", "/v1/tokens") == 403
            assert await status("bob.physics", "POST", "/v1/nodes/clear", {"range": OWN}) == 200
            assert await status("bob.physics", "POST", "/v1/nodes/clear", {"range": OTHER}) == 403
            assert await status("eve.others", "GET", "/v1/nodes") == 403
            (record,) = await world.head.part(Audit).read(0, 0.0, 10)
            assert (record.by, record.kind, record.role, record.scope) == (
                "oidc:bob",
                "oidc",
                "operator",
                ("physics",),
            )


# -- a provider of our own, that does what a test says

KEY, OTHER_KEY, CURVE = (
    rsa.generate_private_key(65537, 2048),
    rsa.generate_private_key(65537, 2048),
    ec.generate_private_key(ec.SECP256R1()),
)
NOW = 1_000_000.0


class Pretended:
    """Serves a discovery document and keys; counts how often it is asked."""

    def __init__(self, port: int) -> None:
        self.issuer = f"https://127.0.0.1:{port}"
        self.keys: Any = [self.jwk(KEY, "a"), self.jwk(CURVE, "c")]
        self.about: Any = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        self.asked = 0

    @staticmethod
    def jwk(key: Any, kid: str) -> dict[str, Any]:
        algorithm = (
            jwt.algorithms.RSAAlgorithm
            if isinstance(key, rsa.RSAPrivateKey)
            else jwt.algorithms.ECAlgorithm
        )
        return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid}

    async def serve_about(self, request: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response(self.about)

    async def serve_keys(self, request: web.Request) -> web.Response:
        return (
            web.Response(text=self.keys)
            if isinstance(self.keys, str)
            else web.json_response({"keys": self.keys})
        )

    def token(
        self,
        *,
        key: Any = KEY,
        kid: str | None = "a",
        alg: str = "RS256",
        head: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        said = {
            "iss": self.issuer,
            "aud": "layercake",
            "sub": "s-1",
            "iat": NOW - 10,
            "exp": NOW + 600,
            "groups": ["physics"],
            "preferred_username": "ann",
            **claims,
        }
        names = {"kid": kid} if kid else {}
        return jwt.encode(
            {k: v for k, v in said.items() if v is not None}, key, alg, {**names, **(head or {})}
        )


@pytest.fixture
async def pretended(tmp_path: Path) -> AsyncIterator[tuple[Pretended, People, FakeClock]]:
    pki.create(tmp_path / "pki", "127.0.0.1")
    port, clock = free_port(), FakeClock()
    made, app = Pretended(port), web.Application()
    app.router.add_get("/.well-known/openid-configuration", made.serve_about)
    app.router.add_get("/keys", made.serve_keys)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pki" / "server.pem", tmp_path / "pki" / "server.key")
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
    clock.now = NOW
    yield made, People(settings(port, tmp_path), clock, clock), clock
    await runner.cleanup()


def secret_of(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def forged(head: dict[str, Any], made: Pretended) -> str:
    """A token whose signature is empty, or made with the public key as if it were a secret."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    body = made.token().split(".")[1]
    begin = f"{part(json.dumps(head).encode())}.{body}"
    tag = (
        hmac.new(secret_of(KEY), begin.encode(), "sha256").digest()
        if head["alg"] == "HS256"
        else b""
    )
    return f"{begin}.{part(tag)}"


Make = Callable[[Pretended], str]
GOOD: dict[str, Make] = {
    "RS256": lambda p: p.token(),
    "PS256": lambda p: p.token(alg="PS256"),
    "ES256": lambda p: p.token(key=CURVE, kid="c", alg="ES256"),
    "several audiences": lambda p: p.token(aud=["other", "layercake"]),
    "one group as a word": lambda p: p.token(groups="physics"),
    "type at+jwt": lambda p: p.token(head={"typ": "at+jwt"}),
}
BAD: dict[str, Make] = {
    "no signature": lambda p: forged({"alg": "none", "kid": "a", "typ": "JWT"}, p),
    "the public key as a secret": lambda p: forged({"alg": "HS256", "kid": "a", "typ": "JWT"}, p),
    "another's key": lambda p: p.token(key=OTHER_KEY),
    "the key of another id": lambda p: p.token(kid="c"),
    "an unknown id": lambda p: p.token(kid="zz"),
    "no id": lambda p: p.token(kid=None),
    "its own key": lambda p: p.token(
        key=OTHER_KEY, kid="zz", head={"jwk": Pretended.jwk(OTHER_KEY, "zz")}
    ),
    "another provider": lambda p: p.token(iss="https://evil.example"),
    "another audience": lambda p: p.token(aud="mail"),
    "no audience": lambda p: p.token(aud=None),
    "nobody": lambda p: p.token(sub=None),
    "no end": lambda p: p.token(exp=None),
    "no beginning": lambda p: p.token(iat=None),
    "expired": lambda p: p.token(exp=NOW),
    "not yet": lambda p: p.token(nbf=NOW + 60),
    "made tomorrow": lambda p: p.token(iat=NOW + 3600, exp=NOW + 7200),
    "for a year": lambda p: p.token(exp=NOW + 365 * 86400),
    "an odd time": lambda p: p.token(exp=float("nan")),
    "times as words": lambda p: p.token(nbf="x"),
    "a logout token": lambda p: p.token(head={"typ": "logout+jwt"}),
    "a logout token without a type": lambda p: p.token(
        events={"http://schemas.openid.net/event/backchannel-logout": {}}
    ),
    "a header without a bottom": lambda p: (
        base64.urlsafe_b64encode(b"[" * 5001).decode() + ".e30.AA"
    ),
    "a header that is a list": lambda p: base64.urlsafe_b64encode(b"[ ]").decode() + ".e30.AA",
    "no JSON": lambda p: "a.b.c",
    "odd words": lambda p: "ä.²." + "\udcff",
}


@pytest.mark.parametrize("make", GOOD.values(), ids=list(GOOD))
async def test_a_token_that_holds(
    pretended: tuple[Pretended, People, FakeClock], make: Make
) -> None:
    made, people, _ = pretended
    found = await people.find(make(made), "10.0.0.9", "curl")
    assert found is not None
    assert (found.name, found.role, found.groups, found.exec) == (
        "oidc:ann",
        Role.OPERATOR,
        ("physics",),
        False,
    )
    assert found.expires == NOW + 600


@pytest.mark.parametrize(
    ("demanded", "claims", "lets_in"),
    [
        ({"acr": ["gold", "silver"]}, {"acr": "silver"}, True),
        ({"acr": ["gold"]}, {"acr": "silver"}, False),
        ({"acr": ["gold"]}, {}, False),
        ({"acr": ["gold"]}, {"acr": ["gold"]}, False),
        ({"amr": ["mfa"]}, {"amr": ["pwd", "mfa"]}, True),
        ({"amr": ["otp", "pwd"]}, {"amr": ["pwd"]}, False),
        ({"amr": ["mfa"]}, {"amr": "mfa"}, False),
        ({"amr": ["mfa"]}, {}, False),
    ],
)
async def test_how_a_person_has_to_sign_in(
    pretended: tuple[Pretended, People, FakeClock],
    tmp_path: Path,
    demanded: dict[str, Any],
    claims: dict[str, Any],
    lets_in: bool,
) -> None:
    made, _, clock = pretended
    port = int(made.issuer.rpartition(":")[2])
    people = People(settings(port, tmp_path, **demanded), clock, clock)
    if lets_in:
        assert await people.find(made.token(**claims), "", "") is not None
    else:
        with pytest.raises(Refused, match=r"oidc:ann: the token does not say a[cm]r"):
            await people.find(made.token(**claims), "", "")


@pytest.mark.parametrize("make", BAD.values(), ids=list(BAD))
async def test_a_token_that_does_not(
    pretended: tuple[Pretended, People, FakeClock], make: Make
) -> None:
    made, people, _ = pretended
    assert await people.find(made.token(), "", "") is not None
    assert await people.find(make(made), "", "") is None


@pytest.mark.parametrize(
    "groups", [None, [], ["others"], [1, None, ["physics"]], {"physics": 1}, "phys", 3]
)
async def test_whose_groups_may_nothing_is_told_so(
    pretended: tuple[Pretended, People, FakeClock], groups: Any
) -> None:
    made, people, _ = pretended
    with pytest.raises(Refused, match="none of the groups"):
        await people.find(made.token(groups=groups), "", "")


async def test_a_name_says_that_it_is_from_elsewhere_and_is_one_line(
    pretended: tuple[Pretended, People, FakeClock],
) -> None:
    made, people, _ = pretended
    for name, shown in (
        ("root", "oidc:root"),
        ("a\x1b\nb", "oidc:ab"),
        ("x" * 999, "oidc:" + "x" * 64),
        (7, "oidc:"),
        (None, "oidc:s-1"),
    ):
        found = await people.find(made.token(preferred_username=name), "", "")
        assert found is not None and found.name == shown


async def test_the_provider_changes_its_keys_and_strangers_do_not_make_us_ask(
    pretended: tuple[Pretended, People, FakeClock],
) -> None:
    made, people, clock = pretended
    assert await people.find(made.token(), "", "") is not None
    for number in range(200):
        assert await people.find(made.token(kid=f"k{number}"), "", "") is None
    assert made.asked == 1
    made.keys = [made.jwk(OTHER_KEY, "b")]
    clock.now += REFRESH_S
    assert await people.find(made.token(key=OTHER_KEY, kid="b"), "", "") is not None
    assert await people.find(made.token(), "", "") is None, "the old key is gone"
    made.keys = []
    clock.now += KEEP_S
    assert (
        await people.find(made.token(key=OTHER_KEY, kid="b", exp=clock.now + 600), "", "") is None
    ), "withdrawn"


@pytest.mark.parametrize(
    "keys",
    [
        "[",
        "[" * 100_000,
        '{"keys": 3}',
        '{"keys": [1, null, {"kty": "oct", "k": "AA", "kid": "a"}]}',
        "x" * (2 << 20),
    ],
    ids=["half", "deep", "a number", "other keys", "too long"],
)
async def test_a_provider_that_answers_with_nonsense(
    pretended: tuple[Pretended, People, FakeClock], keys: str
) -> None:
    made, people, _ = pretended
    made.keys = keys
    try:
        assert await people.find(made.token(), "", "") is None
    except OperationFailed as error:
        assert "cannot use" in error.message


@pytest.mark.parametrize(
    "about",
    [
        {"issuer": "https://evil.example"},
        {"jwks_uri": "http://127.0.0.1/keys"},
        {"jwks_uri": "file:///etc/passwd"},
        {"jwks_uri": None},
    ],
)
async def test_a_discovery_document_of_another(
    pretended: tuple[Pretended, People, FakeClock], about: dict[str, Any]
) -> None:
    made, people, _ = pretended
    made.about |= about
    with pytest.raises(OperationFailed, match="discovery document"):
        await people.find(made.token(), "", "")


async def test_a_provider_that_is_away_or_another_is_said_so(
    pretended: tuple[Pretended, People, FakeClock], tmp_path: Path
) -> None:
    made, _, clock = pretended
    with pytest.raises(
        Unreachable, match="cannot ask the provider"
    ):  # its certificate is of no authority that we know
        port = int(made.issuer.rpartition(":")[2])
        await People(settings(port, tmp_path, ca=""), clock, clock).find(made.token(), "", "")
    with pytest.raises(Unreachable, match="cannot ask the provider"):
        await People(settings(free_port(), tmp_path), clock, clock).find(made.token(), "", "")


def test_the_settings_are_read(tmp_path: Path) -> None:
    text = "interface: eth0\naddress: 10.1.0.1\noidc:\n  issuer: https://sso.example\n  grants:\n"
    text += "    physics: {role: operator, groups: [physics]}\n"
    (tmp_path / "config.yaml").write_text(text)
    found = head_settings.load(tmp_path).oidc
    assert found.grants["physics"].groups == ["physics"] and not found.grants["physics"].exec
    with pytest.raises(InputError, match="must be https"):
        People(OidcSettings(issuer="http://sso.example"), time.time, time.time)
