"""People by OpenID Connect: a token that the site's identity provider has signed for this head says
who it is and what groups he or she is in; config.yaml says what these groups may here.

PyJWT checks the signature and the claims (OpenID Connect Core 1.0, 3.1.3.7; RFC 7519; RFC 8725).
The keys come from the provider by its discovery document (OpenID Connect Discovery 1.0, 4), and are
asked for anew when one is not known, so that the provider can change them.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import aiohttp
import jwt
import msgspec
from msgspec import Meta

from layercake.api.caller import Caller, printable
from layercake.base.clock import Clock
from layercake.base.text import describe
from layercake.kraken.errors import InputError, OperationFailed, Refused, Unreachable
from layercake.moduleapi.fields import Check, Mistake, text
from layercake.moduleapi.module import Role

ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""Signatures by a key pair. None that a secret of both sides makes: a public key must never be
taken for one (RFC 8725, 2.1)."""
NEEDED = ["iss", "aud", "sub", "exp", "iat"]
REFRESH_S = 30.0
"""Seconds between two requests for keys, at least."""
KEEP_S = 3600.0
"""Seconds after which keys are asked for in any case: the provider may have withdrawn one."""
ANSWER_S = 10.0
TYPES = ("jwt", "at+jwt", "application/at+jwt")
"""Of tokens that say who somebody is. A provider signs others with the same keys, of logouts above
all (RFC 8725, 3.11)."""
LEEWAY_S = 30.0
BIGGEST = 1 << 20
LONGEST = 8000
WORD = 64
SUBJECT = 255


def claim_values(value: object) -> list[str]:
    """Values of a claim, as an identity provider writes them; perhaps none."""
    if not isinstance(value, list):
        raise Mistake(f"expected a list of words, found {describe(value)}", "such as [mfa]")
    words = [text(word) for word in value]
    if any(not word or not word.isprintable() or " " in word for word in words):
        raise Mistake("each of them is one word", "such as [mfa]")
    return words


class Grant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the members of a group may: as a token's role, groups (null: the whole site) and
    right."""

    role: Literal["viewer", "operator", "admin"]
    groups: list[str] | None = None
    exec: bool = False


class OidcSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """People by OpenID Connect."""

    issuer: Annotated[
        str, Meta(description="The identity provider, https://...; empty for none.")
    ] = ""
    audience: Annotated[str, Meta(description="What tokens for this head name: the client id.")] = (
        "layercake"
    )
    ca: Annotated[
        str,
        Meta(
            description="A file with the authority of the provider's certificate; empty for the "
            "system's."
        ),
    ] = ""
    name: Annotated[str, Meta(description="The claim with the person's name.")] = (
        "preferred_username"
    )
    claim: Annotated[
        str, Meta(description="The claim with the person's groups: a list of words, or one.")
    ] = "groups"
    longest_s: Annotated[
        float,
        Meta(gt=0, description="Tokens for more seconds are refused: they cannot be revoked."),
    ] = 86400.0
    acr: Annotated[
        list[str],
        Check(claim_values),
        Meta(
            description="How a person must have signed in: the claim `acr` of a token is one of "
            "these. Empty: any way."
        ),
    ] = []
    amr: Annotated[
        list[str],
        Check(claim_values),
        Meta(
            description="What a person must have shown: the claim `amr` of a token has all of "
            "these, such as [mfa] or [pwd, otp] (RFC 8176)."
        ),
    ] = []
    grants: Annotated[
        dict[str, Grant],
        Meta(
            description="What each group may: its name, and role, groups, exec. Of several, the "
            "first counts."
        ),
    ] = {}


class People:
    """Knows people by their tokens."""

    def __init__(self, settings: OidcSettings, clock: Clock, wall: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._keys: dict[str, jwt.PyJWK] = {}
        self._asked = self._had = float("-inf")
        self._turn = asyncio.Lock()
        if settings.issuer and not settings.issuer.startswith("https://"):
            raise InputError(
                f"cannot use oidc.issuer {settings.issuer[:80]}: it must be https://..."
            )

    def knows(self, text: str) -> bool:
        """Whether a bearer token may be one of these: three parts, and there is a provider."""
        return bool(self._settings.issuer) and text.count(".") == 2 and len(text) <= LONGEST

    async def find(self, text: str, address: str, program: str) -> Caller | None:
        """Who a token is, None if it is not valid. Raises Refused for a person whose groups may
        nothing here, or who has not signed in as the settings want it, and Unreachable or
        OperationFailed if the provider's keys cannot be had."""
        try:
            head = jwt.get_unverified_header(text)
            if (
                str(head.get("typ", "jwt")).lower() not in TYPES
                or (key := await self._key(head.get("kid"))) is None
            ):
                return None
            claims = jwt.decode(
                text,
                key.key,
                algorithms=list(ALGORITHMS),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                options={
                    "require": NEEDED,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except (jwt.PyJWTError, TypeError, ValueError):
            return None
        return self._caller(claims, address, program) if self._holds(claims) else None

    def _holds(self, claims: Mapping[str, Any]) -> bool:
        """Whether a token holds now, by the head's own clock."""
        times = [claims["exp"], claims["iat"], claims.get("nbf", claims["iat"])]
        if not all(isinstance(t, int | float) and not isinstance(t, bool) for t in times):
            return False
        if "events" in claims:
            return False
        now = self._wall()
        (expires, made, begins) = times
        return bool(
            max(made, begins) - LEEWAY_S <= now < expires
            and expires - made <= self._settings.longest_s
        )

    def _caller(self, claims: Mapping[str, Any], address: str, program: str) -> Caller:
        name = claims.get(self._settings.name, claims["sub"])
        shown = f"oidc:{printable(name if isinstance(name, str) else '', WORD)}"
        self._check_sign_in(claims, shown)
        said = claims.get(self._settings.claim)
        groups = (
            {said}
            if isinstance(said, str)
            else {g for g in said if isinstance(g, str)}
            if isinstance(said, list)
            else set()
        )
        grant = next(
            (grant for group, grant in self._settings.grants.items() if group in groups), None
        )
        if grant is None:
            raise Refused(
                f"cannot serve {shown}: none of the groups of this person may do anything here",
                hint="oidc.grants in config.yaml says what groups may",
            )
        return Caller(
            shown,
            "oidc",
            Role[grant.role.upper()],
            None if grant.groups is None else tuple(grant.groups),
            grant.exec,
            address,
            program,
            printable(str(claims["sub"]), SUBJECT),
            float(claims["exp"]),
        )

    def _check_sign_in(self, claims: Mapping[str, Any], shown: str) -> None:
        """Raises Refused unless the token says that its person has signed in as the settings want
        it (OpenID Connect Core 1.0, 2: acr, amr)."""
        accepted = self._settings.acr
        if accepted and claims.get("acr") not in accepted:
            raise Refused(
                f"cannot serve {shown}: the token does not say acr {' or '.join(accepted)}",
                hint="sign in again, as oidc.acr in config.yaml wants it",
            )
        methods = claims.get("amr")
        held = methods if isinstance(methods, list) else []
        missing = [method for method in self._settings.amr if method not in held]
        if missing:
            raise Refused(
                f"cannot serve {shown}: the token does not say amr {', '.join(missing)}",
                hint="sign in again, as oidc.amr in config.yaml wants it",
            )

    # -- the provider's keys

    async def _key(self, kid: object) -> jwt.PyJWK | None:
        """The key of an id; without one, the only key there is."""
        if (found := self._known(kid)) is not None:
            return found
        async with self._turn:
            if self._known(kid) is None and self._clock() - self._asked >= REFRESH_S:
                self._asked = self._clock()
                self._keys = _keys(await self._fetch())
                self._had = self._asked
            return self._known(kid)

    def _known(self, kid: object) -> jwt.PyJWK | None:
        if self._clock() - self._had >= KEEP_S:
            return None
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid) if isinstance(kid, str) else None

    async def _fetch(self) -> Mapping[str, Any]:
        issuer = self._settings.issuer
        try:
            context = ssl.create_default_context(cafile=self._settings.ca or None)
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=context),
                timeout=aiohttp.ClientTimeout(total=ANSWER_S),
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            ) as session:
                about = await _get(
                    session, f"{issuer.rstrip('/')}/.well-known/openid-configuration"
                )
                place = about.get("jwks_uri")
                if (
                    about.get("issuer") != issuer
                    or not isinstance(place, str)
                    or not place.startswith("https://")
                ):
                    raise OperationFailed(
                        f"cannot use the provider {issuer}: its discovery document is that of "
                        "another, or names "
                        "no keys"
                    )
                return await _get(session, place)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise Unreachable(
                f"cannot ask the provider {issuer} for its keys: {error or type(error).__name__}",
                hint="a token of `layercake token create NAME --role ROLE` needs no provider",
            ) from None
        except (ValueError, RecursionError):
            raise OperationFailed(
                f"cannot use the provider {issuer}: it does not answer with JSON"
            ) from None


async def _get(session: aiohttp.ClientSession, url: str) -> Mapping[str, Any]:
    async with session.get(url, allow_redirects=False) as answer:
        data = bytearray()
        async for piece in answer.content.iter_chunked(1 << 16):
            data += piece
            if len(data) > BIGGEST:
                break
        found = json.loads(data) if answer.status == 200 and len(data) <= BIGGEST else None
    if not isinstance(found, dict):
        raise OperationFailed(
            f"cannot use {url[:200]}: the provider answers {answer.status}, or something else than "
            "an object"
        )
    return found


def _keys(data: Mapping[str, Any]) -> dict[str, jwt.PyJWK]:
    """The keys for signatures, by their ids; what cannot be used is left out."""
    found = {}
    for entry in data["keys"] if isinstance(data.get("keys"), list) else ():
        if (
            isinstance(entry, dict)
            and entry.get("kty") in ("RSA", "EC", "OKP")
            and entry.get("use", "sig") == "sig"
        ):
            try:
                found[str(entry.get("kid", ""))] = jwt.PyJWK(entry)
            except jwt.PyJWTError:
                continue
    return found
