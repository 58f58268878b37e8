"""Who belongs to the heads of a site: invited, taken in, retired, removed. On the head that
leads."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from layercake.agents.pki import Authority
from layercake.base.clock import boottime
from layercake.features.heads.invitations import Invitations
from layercake.features.heads.joining import (
    JoinAnswer,
    JoinRequest,
    check_name,
    check_request,
    url_of,
)
from layercake.features.heads.register import Entry, Register
from layercake.fleet import events
from layercake.fleet.store import Store
from layercake.heads.etcd import Etcd, StoreAway, StoreRefused
from layercake.heads.site import HeadsShown, SharedSite
from layercake.kraken.errors import LayercakeError, NotFound, OperationFailed, Refused

log = logging.getLogger("layercake.heads")
PROMOTE_S = 1.0
ADD_S = 20.0
_SITE = "heads/site.yaml"
_KEY = "heads/site.key"


class Membership:
    """The heads and witnesses of the site that `site` is of. `url` is where others reach this head.
    `removed` is called with the name of one that was removed."""

    def __init__(
        self,
        data_dir: Path,
        site: SharedSite,
        store: Store,
        authority: Authority,
        invitations: Invitations,
        url: str,
        removed: Callable[[str], None],
    ) -> None:
        self._removed = removed
        self._data_dir = data_dir
        self._site = site
        self._store = store
        self._authority = authority
        self._invitations = invitations
        self._url = url
        self._register = Register(data_dir)
        self._turn = asyncio.Lock()

    # -- inviting

    async def invite(self, name: str, by: str, *, witness: bool, third: bool) -> tuple[str, str]:
        """The URL and the token by which a machine becomes a head of this name, or a witness.
        Raises InputError, Refused, and OperationFailed."""
        check_name(name)
        members = self._register.read().members
        if name in members:
            raise Refused(
                f"cannot invite {name}: there is one", hint=f"`layercake heads remove {name}`"
            )
        if witness and not self._register.own_store:
            raise Refused("cannot invite a witness: the store is an etcd of the site's own")
        votes = await self._site.ask_store(lambda etcd: etcd.members())
        if self._register.own_store and len(votes) == 1 and not (witness or third):
            raise Refused(
                "cannot invite a second head: with two votes the loss of either machine stops both",
                hint="`layercake heads invite witness1 --witness` on a third, small machine first; "
                "--third-head if a third head follows; see `layercake docs second-head`",
            )
        authorities = await asyncio.to_thread(self._authority.trusted.read_bytes)
        token = await self._invitations.add(name, authorities, by, witness=witness)
        what = "a witness" if witness else "a head"
        self._store.event(None, events.HEAD_INVITED, f"{name} is invited to be {what}, by {by}")
        return self._url, token

    # -- taking in

    async def join(self, request: JoinRequest, address: str) -> JoinAnswer:
        """Takes a machine in. Raises InputError, Refused, and OperationFailed; its invitation is
        used up unless it was never there."""
        check_request(request)
        async with self._turn:
            invited = await self._invitations.redeem(request.token, witness=request.witness)
            self._site.files.check()
            name = invited.name
            await self._site.retire(name, retired=False)  # one of this name may have been removed
            own = self._register.own_store
            client_url = url_of(request.addresses[0], request.client_port) if own else ""
            peer_url = url_of(request.addresses[0], request.peer_port) if own else ""
            files = await asyncio.to_thread(
                self._register.add, name, peer_url, request.addresses, witness=invited.witness
            )
            try:
                peers = await self._add_member(name, peer_url) if own else {}
            except LayercakeError:
                await asyncio.to_thread(self._register.remove, name)
                raise
            store = await self._endpoints()
            answer = JoinAnswer(name, self._site.prefix, store, files, client_url, peer_url, peers)
            if not invited.witness:
                answer = await asyncio.to_thread(self._for_head, answer, request)
        what = "a witness" if invited.witness else "a head"
        text = f"{name} is {what} of the site, at {address}, invited by {invited.by}"
        self._store.event(None, events.HEAD_JOINED, text, data={"version": request.version[:40]})
        await self._site.wait_until_copied()
        return answer

    async def _endpoints(self) -> list[str]:
        members = await self._site.ask_store(lambda etcd: etcd.members())
        return sorted(url for one in members for url in one.get("clientURLs", ()))

    async def _add_member(self, name: str, peer_url: str) -> dict[str, str]:
        """Adds a member that has no vote yet; the peer URLs of all members by name. etcd takes none
        in before it has heard of the last one for five seconds."""
        until = boottime() + ADD_S
        while True:
            members = await self._site.ask_store(lambda etcd: etcd.members())
            if any(peer_url in one.get("peerURLs", ()) for one in members):
                break
            try:
                await self._site.ask_store(lambda etcd: etcd.add_member(peer_url, learner=True))
            except StoreAway:
                if boottime() > until:
                    raise
                await asyncio.sleep(PROMOTE_S)
        peers = {
            str(one["name"]): str(one["peerURLs"][0])
            for one in members
            if one.get("name") and one.get("peerURLs")
        }
        return {**peers, name: peer_url}

    def _for_head(self, answer: JoinAnswer, request: JoinRequest) -> JoinAnswer:
        """What a head gets beside what a witness gets. Raises OperationFailed."""
        try:
            key = (self._data_dir / _KEY).read_bytes()
            site = (self._data_dir / _SITE).read_text()
            authorities = self._authority.trusted.read_text()
        except OSError as error:
            raise OperationFailed(f"cannot read {error.filename}: {error.strerror}") from None
        server = self._authority.issue_head(*request.addresses)
        return msgspec.structs.replace(
            answer,
            site_key=base64.b64encode(key).decode(),
            site=site,
            authorities=authorities,
            server=server,
        )

    async def promote_learners(self) -> None:
        """Gives new members their votes as soon as they have what the others have; until it is
        cancelled."""
        while self._register.own_store:
            try:
                members = await self._site.ask_store(lambda etcd: etcd.members())
                for one in members:
                    if one.get("isLearner") and one.get("name"):
                        await self._promote(int(one["ID"]))
            except LayercakeError as error:
                log.debug("cannot look after the members of the store: %s", error)
            await asyncio.sleep(PROMOTE_S)

    async def _promote(self, member: int) -> None:
        try:
            await self._site.ask_store(lambda etcd: etcd.promote_member(member))
        except StoreRefused as error:  # it lags
            log.debug("a new member of the store has no vote yet: %s", error)

    # -- leaving

    async def retire(self, name: str, by: str) -> None:
        """A head does not lead any more, until it is promoted. Raises OperationFailed."""
        await self._site.retire(name, retired=True)
        self._store.event(None, events.HEAD_RETIRED, f"{name} does not lead any more, by {by}")

    async def remove(self, name: str, by: str) -> None:
        """Takes a head or a witness out: its member of the store, and its certificate. Raises
        NotFound, Refused and OperationFailed."""
        if name == self._site.name:
            raise Refused(
                f"cannot remove {name}: it leads",
                hint="`layercake heads promote HEAD` has another one lead; `layercake heads end` "
                "on the last one",
            )
        async with self._turn:
            entry = self.entry(name)
            if self._register.own_store:
                await self._remove_member(entry)
            await self._site.retire(name, retired=True)  # it may run on, and reach the store
            self._removed(name)
            await asyncio.to_thread(self._register.remove, name)
            if self._site.files.lacks:
                await self._site.accept_files()
        self._store.event(None, events.HEAD_REMOVED, f"{name} was removed, by {by}")

    def entry(self, name: str) -> Entry:
        """What is known of a head or a witness. Raises NotFound."""
        members = self._register.read().members
        if name not in members:
            names = ", ".join(sorted(members))
            raise NotFound(f"cannot find {name[:80]!r}: there are {names}")
        return members[name]

    async def _remove_member(self, entry: Entry) -> None:
        members: list[dict[str, Any]] = await self._site.ask_store(lambda etcd: etcd.members())
        ids = [int(one["ID"]) for one in members if entry.peer_url in one.get("peerURLs", ())]
        for number in ids:
            await self._site.ask_store(partial(Etcd.remove_member, member=number))


class FilesLacking(Refused):
    """No head that might lead has all files of the site yet."""


def check_others_lead(shown: HeadsShown, name: str) -> None:
    """Raises Refused if none of the other heads may lead, FilesLacking if none can at once."""
    others = [one for one in shown.heads if one.head not in (name, *shown.retired)]
    if not others:
        raise Refused(f"cannot retire {name}: no other head is there that may lead")
    if name == shown.leader and all(one.files != shown.files for one in others):
        raise FilesLacking(
            f"cannot retire {name}: it leads, and no other head has all files of the site yet",
            hint="see `layercake heads`, and try again then",
        )
