"""How a node shows at the join who it is by its TPM: asked first, with a pass for the join when the
head is content.

  POST /node/v1/join {claim, "tpm": true}    {"attest": {}} if the inventory says so
  POST /node/v1/attest {claim, "tpm": {"ek", ...}}    {"credential", "secret", "nonce", "registers"}
  POST /node/v1/attest {claim, "tpm": {"quote", ...}} {"pass": WORD}
  POST /node/v1/join {claim, "tpm": true, "pass": WORD}

Each of them needs the token of the boot: nobody else has the head do anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from layercake.agents.https.routes import NO_STORE, OpenRoute
from layercake.agents.joining import Claim, Joining, claim_of
from layercake.agents.reports import set_name
from layercake.base.secrets import mark_of
from layercake.base.text import parse_json
from layercake.features.tpm.manager import Boot, Tpms
from layercake.fleet.store import Record, Store
from layercake.kraken.errors import Refused
from layercake.moduleapi.web import body_of

MOST_BODY = 256 << 10
"""Bytes of a quote with its event log: 512 events of 300 bytes at most."""


def _boot(claim: Claim, body: Mapping[str, Any]) -> Boot:
    """Who asks to join, by the claim and by what it says of itself."""
    return Boot(claim.boot_id, set_name(body.get("boot")), claim.address, mark_of(claim.token))


class TpmCheck:
    """Asks a joining node for its TPM (agents.join.JoinCheck)."""

    def __init__(self, store: Store, joining: Joining, tpms: Tpms) -> None:
        self._store = store
        self._joining = joining
        self._tpms = tpms

    def routes(self) -> list[OpenRoute]:
        """The routes."""
        return [OpenRoute("POST", "/node/v1/attest", self._attest)]

    def passed(self, record: Record, claim: Claim) -> bool:
        """See JoinCheck: whether what was booted was quoted, and is as recorded."""
        return self._tpms.spend(record, claim.boot_id)

    async def _attest(self, request: web.Request) -> web.Response:
        """A node says what its TPM is, or hands its quote in."""
        try:
            body = parse_json(await body_of(request, MOST_BODY))
        except ValueError:
            body = None
        record, claim = claim_of(self._store, body, request.remote or "")
        self._joining.claim(record, claim)
        said = body.get("tpm")
        if not isinstance(said, dict) or not self._tpms.asks(record):
            raise Refused("cannot take what the node says of its TPM: nothing was asked of it")
        boot = _boot(claim, body)
        if isinstance(said.get("missing"), str):
            answer = await self._tpms.without(record, boot, said["missing"])
        elif "quote" in said:
            answer = await self._tpms.answered(record, boot, said)
        else:
            answer = self._tpms.challenge(record, boot, said)
        return web.json_response(answer, headers=NO_STORE)

    async def before(
        self, record: Record, claim: Claim, body: Mapping[str, Any]
    ) -> web.Response | None:
        """See JoinCheck."""
        if not self._tpms.asks(record) or self._tpms.passes(
            record, claim.boot_id, body.get("pass")
        ):
            return None
        self._joining.claim(record, claim)
        if body.get("tpm") is True:
            return web.json_response({"attest": {}})
        boot = _boot(claim, body)
        await self._tpms.without(record, boot, "its minOS is of a version that knows of no TPM")
        return None
