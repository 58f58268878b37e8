"""The nodes' files on the head: which a node has now, rendered when it asks, and when it has to be
told that others are wanted."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from layercake.base.secrets import OF_FILES, SecretRef, Vault
from layercake.features.files import given, sources
from layercake.features.files.entry import Entry
from layercake.features.files.hostkeys import DOCUMENTS as HOST_KEYS
from layercake.features.files.hostkeys import HostKeys
from layercake.features.files.inventory import TEMPLATE, File, Files, place_of
from layercake.features.files.module import FileSettings
from layercake.features.files.rendering.renderer import Renderer
from layercake.features.files.rendering.template import CLOSES, OPENS
from layercake.features.files.sources import Source, Sources
from layercake.fleet import events
from layercake.fleet.desired import DesiredState
from layercake.fleet.networks import SiteNetworks
from layercake.fleet.store import Record, Store
from layercake.fleet.wishes import wishes
from layercake.inventory.schema import Node
from layercake.kraken.errors import InputError, LayercakeError
from layercake.moduleapi.event_loop.slices import in_slices

KEPT = 256
"""So many nodes' files are kept as they were rendered: what one has asked for is often asked for
again."""
MAX_ALL = 8 << 20
"""Bytes of all files of a node."""
NONE = Files()


@dataclass(frozen=True, slots=True)
class Manifest:
    """All files of a node, as of `mark`, without secrets: those are put in for the node alone."""

    mark: str
    entries: tuple[Entry, ...]

    @property
    def errors(self) -> list[str]:
        """What is wrong with those that could not be made."""
        return [f"{','.join(e.targets)}:{e.path}: {e.error}" for e in self.entries if e.error]


class NodeFiles:
    """The files of all nodes. `head` gives the head's address for a node, by the node's id; `tell`
    has a node pull what it is to have."""

    def __init__(
        self,
        store: Store,
        desire: DesiredState,
        networks: SiteNetworks,
        vault: Vault,
        settings: FileSettings,
        kept: Sources,
        head: Any,
        tell: Any,
    ) -> None:
        self._store = store
        self._networks = networks
        self._vault = vault
        self._settings = settings
        self._head = head
        self._tell = tell
        self.sources = kept
        self.keys = HostKeys(store, desire)
        self._renderer = Renderer()
        self._site: tuple[str, dict[str, Any]] | None = None
        self._secrets = ""
        self._spread = ""
        self._outdated = False
        self._spreading = asyncio.Lock()
        self._marks: dict[str, tuple[Node, Any, str, str]] = {}
        self._told: dict[str, str] = {}
        self._made: OrderedDict[tuple[str, str], Manifest] = OrderedDict()
        self._wrong: dict[str, tuple[str, list[str]]] = {}
        self.said: dict[str, dict[str, Any]] = {}
        """What nodes last said of their files, by id."""

    @property
    def directory(self) -> Path:
        """Where the site's files are."""
        return Path(self._settings.directory)

    def known_hosts(self, records: Iterable[Record]) -> str:
        """Lines for ~/.ssh/known_hosts of those that have a host key."""
        found = [(r, self.keys.public(r)) for r in records]
        lines = [
            given.known_host(given.names_of(r.name, self._networks.of(r.node)), r.node.ip, key)
            for r, key in found
            if key
        ]
        return "".join(f"{line}\n" for line in lines)

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what was in force; `documents` are those of the sources and of the keys."""
        self.sources.load(documents)
        self._secrets = self._secrets_now()
        self.keys.load({key: data for key, data in documents.items() if key.startswith(HOST_KEYS)})

    async def close(self) -> None:
        """Ends what renders."""
        await self._renderer.close()

    # ---- which files, and when they are others

    def site(self) -> tuple[str, dict[str, Any]]:
        """What templates know of the whole site, and a mark of it, as of the inventory that was
        applied last."""
        if self._site is None:
            self._site = given.site([self._row(record.node) for record in self._store])
        return self._site

    def _row(self, node: Node) -> tuple[str, str, str, tuple[str, ...]]:
        return node.name, given.fqdn(node.name, self._networks.of(node)), node.ip, node.groups

    def _version(self) -> str:
        return f"{self.site()[0]} {self.sources.version} {self._secrets}"

    def mark(self, record: Record) -> str:
        """Stands for all that a node's files depend on; for secrets as they were when an inventory
        was applied last."""
        node = record.node
        network = self._networks.of(record.node)
        had = self._marks.get(node.id)
        version = self._version()
        if had is not None and had[1] is network and had[2] == version and _alike(had[0], node):
            return had[3]
        part = _part(node)
        used = set(_used(part))
        digests = [
            (path, s.digest, s.executable)
            for path, s in self.sources.by_path.items()
            if used and sources.is_used(path, used)
        ]
        facts = [
            msgspec.msgpack.encode(part),
            digests,
            self._facts(node),
            self._settings.given,
            wishes(node).authorized_keys,
            self.site()[0] if self._needs_site(part) else "",
            self._secrets if _needs_secrets(part) else "",
        ]
        mark = hashlib.blake2b(msgspec.msgpack.encode(facts), digest_size=12).hexdigest()
        self._marks[node.id] = node, network, version, mark
        return mark

    def _secrets_now(self) -> str:
        """Stands for the secrets' files as they are on the disk. May block."""
        place = self._vault.directory / OF_FILES
        found = (
            sorted((e.name, e.stat().st_mtime_ns, e.stat().st_size) for e in os.scandir(place))
            if place.is_dir()
            else []
        )
        return hashlib.blake2b(repr(found).encode(), digest_size=8).hexdigest()

    def document(self, record: Record) -> dict[str, Any]:
        """What a node's desired state says of its files."""
        mark = self._told[record.node.id] = self.mark(record)
        return {"files": {"mark": mark}}

    async def spread(self, changed: Sequence[tuple[Node, Node]] | None) -> None:
        """Has the nodes pull of which the files are others than those that they were told of;
        `changed` are others than before, (before, now), None: any may be. The next makes up for one
        that fails."""
        if changed is None or any(self._row(before) != self._row(now) for before, now in changed):
            self._outdated = True
        try:
            async with self._spreading:
                await self._spread_in_turn(changed or ())
        except BaseException:
            self._outdated = True
            raise

    async def _spread_in_turn(self, changed: Sequence[tuple[Node, Node]]) -> None:
        self._secrets = await asyncio.to_thread(self._secrets_now)
        outdated = self._outdated
        if outdated:
            self._outdated = False
            rows = [self._row(record.node) async for record in in_slices(list(self._store))]
            self._site = await asyncio.to_thread(given.site, rows)
        if self._site is None:
            return  # nobody was told of any
        version = self._version()
        records = [r for _, now in changed if (r := self._store.find(now.id)) is not None]
        if outdated or version != self._spread:
            records = list(self._store)
        self._spread = version
        async for record in in_slices(records):
            told = self._told.get(record.node.id)
            if told and told != self.mark(record):  # who was told of none yet needs no mark
                self._tell(record)

    def forget(self, record: Record) -> None:
        """A node is gone."""
        for kept in (self._marks, self._told, self._wrong, self.said):
            kept.pop(record.node.id, None)
        self.keys.forget(record)

    def errors(self, record: Record) -> list[str]:
        """What was wrong with a node's files when they were last rendered."""
        mark, found = self._wrong.get(record.node.id, ("", []))
        return found if mark and mark == self.mark(record) else []

    def apply_report(self, record: Record, data: Mapping[str, Any]) -> None:
        """Keeps what a node says of its files, as far as it is well-formed."""
        found: dict[str, Any] = {"mark": str(data.get("mark", ""))[:64]}
        for name in ("waiting", "errors"):
            said = data.get(name)
            found[name] = [str(one)[:500] for one in said[:100]] if isinstance(said, list) else []
        self.said[record.node.id] = found

    def troubles(self, record: Record) -> list[str]:
        """What is wrong with a node's files: those that could not be made here, and what the node
        said."""
        return [*self.errors(record), *self.said.get(record.node.id, {}).get("errors", ())]

    # ---- the files

    async def manifest(self, record: Record) -> Manifest:
        """A node's files as they are wanted now."""
        mark = self.mark(record)
        key = (record.node.id, mark)
        if key in self._made:
            self._made.move_to_end(key)
            return self._made[key]
        found = Manifest(
            mark, tuple(await self.rendered(record, _part(record.node), self.sources.by_path))
        )
        self._made[key] = found
        while len(self._made) > KEPT:
            self._made.popitem(last=False)
        self._note(record, found)
        return found

    def _note(self, record: Record, found: Manifest) -> None:
        if found.errors and self._wrong.get(record.node.id) != (found.mark, found.errors):
            self._store.event(record, events.FILES_FAILED, "; ".join(found.errors)[:2000])
        self._wrong[record.node.id] = found.mark, found.errors

    async def rendered(
        self,
        record: Record,
        part: Files,
        by_path: Mapping[str, Source],
        contents: Mapping[str, bytes] | None = None,
    ) -> list[Entry]:
        """The files of a node by an entry of an inventory and sources, which may be others than
        those in force; the contents of others are in `contents`."""
        mark, facts = self.site()
        entries: list[Entry] = []
        if self._settings.given:
            few = facts["nodes"] if len(facts["nodes"]) <= given.HOSTS_MOST else ()
            others = [
                (n["ip"], given.names_of(n["name"], {"domain": n["fqdn"].partition(".")[2]}))
                for n in few
            ]
            entries = given.given(
                record.node,
                self._networks.of(record.node),
                others,
                await self.keys.of(record),
                wishes(record.node).authorized_keys,
            )
        if any(place_of(key).of_metadata for key in part.entries):
            entries.append(
                given.facts(
                    record.node, self._networks.of(record.node), wishes(record.node).authorized_keys
                )
            )
        wanted = await asyncio.to_thread(self._collect, part, by_path, contents or {})
        texts = [text for _, text in wanted if text is not None]
        rendered = iter(
            await self._renderer.render(texts, self._facts(record.node), facts, mark)
            if texts
            else ()
        )
        for entry, text in wanted:
            if text is None:
                entries.append(entry)
                continue
            made, wrong = next(rendered)
            entries.append(
                replace(entry, data=(made or "").encode(), error=wrong, names_secrets=True)
            )
        return _bounded(entries)

    def _collect(
        self, part: Files, by_path: Mapping[str, Source], contents: Mapping[str, bytes]
    ) -> list[tuple[Entry, str | None]]:
        """Each file, and the text of its template. On a thread. What all images get comes first:
        later ones win on the node."""

        def content(source: Source) -> bytes:
            return contents.get(source.digest) or self.sources.content(source.digest)

        found = []
        for key, one in sorted(part.entries.items(), key=_order):
            place = place_of(key)
            for path, source in _sources_of(place.path, one, by_path):
                entry = Entry(
                    place.targets,
                    path,
                    mode=one.mode or ("0600" if one.secret else "0644"),
                    owner=one.owner,
                    group=one.group,
                    on_change=one.on_change,
                    secret=bool(one.secret),
                    of_site=one.content is None or bool(one.template),
                    leave=one.leave,
                )
                try:
                    found.append(_filled(entry, one, path, source, content))
                except LayercakeError as error:
                    found.append((replace(entry, error=str(error)), None))
        return found

    def for_node(self, manifest: Manifest) -> list[dict[str, Any]]:
        """A manifest with its secrets, as only the node itself gets it. On a thread."""
        return [self._revealed(entry).to_wire() for entry in manifest.entries]

    def _revealed(self, entry: Entry) -> Entry:
        text = entry.data.decode(errors="surrogateescape")
        if not entry.names_secrets or OPENS not in text or entry.error:
            return entry
        try:
            parts = []
            for piece in text.split(OPENS):
                name, closes, rest = piece.partition(CLOSES)
                value = self._vault.whole(SecretRef(file=f"{OF_FILES}/{name}")) if closes else b""
                text = rest if closes else piece
                parts += [
                    value if entry.secret else value.rstrip(b"\n"),
                    text.encode(errors="surrogateescape"),
                ]
        except InputError as error:
            return replace(entry, data=b"", error=str(error))
        return replace(entry, data=b"".join(parts))

    def _facts(self, node: Node) -> dict[str, Any]:
        network = self._networks.of(node)
        return {
            "name": node.name,
            "fqdn": given.fqdn(node.name, network),
            "id": node.id,
            "ip": node.ip,
            "macs": list(node.macs),
            "arch": node.arch,
            "firmware": node.firmware,
            "groups": list(node.groups),
            "profile": node.profile,
            "network": dict(network) if network else {},
            "head": self._head(node.id),
        }

    def _needs_site(self, part: Files) -> bool:
        """Whether a node's files may depend on other nodes."""
        return (self._settings.given and len(self._store) <= given.HOSTS_MOST) or any(
            map(_may_be_template, part.entries.values())
        )


def shown(entry: Entry, *, bound: bool = False) -> str:
    """What people may see of a file: names in the place of secrets. `bound`: people who are bound
    to groups."""
    if bound and entry.of_site:
        return "<not shown to who is bound to groups>\n"
    if entry.secret and not entry.names_secrets:
        return "<secret>\n"
    text = entry.data.decode(errors="backslashreplace")
    if not entry.names_secrets:
        return text
    return text.replace(OPENS, "<secret ").replace(CLOSES, ">")


def has_secrets(manifest: Manifest) -> bool:
    """Whether there is something in a node's files that nobody is shown."""
    return any(
        entry.secret or (entry.names_secrets and OPENS.encode() in entry.data)
        for entry in manifest.entries
    )


def _alike(one: Node, other: Node) -> bool:
    """Whether two entries of a node are the same for its files: a roll changes its images alone,
    and each node asks in it."""
    return one is other or (
        one.parts is other.parts
        and one.groups is other.groups
        and (one.name, one.ip, one.macs, one.arch, one.firmware, one.profile)
        == (other.name, other.ip, other.macs, other.arch, other.firmware, other.profile)
    )


def _part(node: Node) -> Files:
    found = node.parts.get("files")
    return found if isinstance(found, Files) else NONE


def _needs_secrets(part: Files) -> bool:
    return any(one.secret or _may_be_template(one) for one in part.entries.values())


def _may_be_template(one: File) -> bool:
    return bool(one.template or one.tree or one.source.endswith(TEMPLATE))


def _used(part: Files) -> Iterator[str]:
    return (one.source or one.tree for one in part.entries.values() if one.source or one.tree)


def _order(item: tuple[str, File]) -> tuple[bool, bool, str]:
    """Trees before single files, what all images get before what is for one."""
    key, one = item
    return not one.tree, place_of(key).targets != ("*",), key


def _sources_of(
    path: str, one: File, by_path: Mapping[str, Source]
) -> Iterator[tuple[str, Source | None]]:
    """Where the files of an entry go, and what they are made of."""
    if not one.tree:
        yield path, by_path.get(one.source)
        return
    prefix = f"{one.tree}/"
    for name, source in by_path.items():
        if name.startswith(prefix):
            yield f"{path.rstrip('/')}/{name.removeprefix(prefix)}", source


def _filled(
    entry: Entry, one: File, path: str, source: Source | None, content: Any
) -> tuple[Entry, str | None]:
    """A file with its content, or with the text of its template. Raises LayercakeError."""
    if one.leave:
        return entry, None
    if one.secret:
        data = f"{OPENS}{one.secret}{CLOSES}".encode()
        return replace(entry, data=data, names_secrets=True), None
    if one.content is not None:
        if one.template:
            return entry, one.content
        return replace(entry, data=one.content.encode()), None
    if source is None:
        raise InputError(
            f"there is no {one.source} in the directory of files",
            hint="put it there, and apply the inventory again",
        )
    return _from_source(entry, one, path, source, content(source))


def _from_source(
    entry: Entry, one: File, path: str, source: Source, data: bytes
) -> tuple[Entry, str | None]:
    """A file out of the directory of files. Raises InputError for a template that is no text."""
    name = path if one.tree else one.source
    is_template = name.endswith(TEMPLATE) if one.template is None else one.template
    if source.executable and not one.mode:
        entry = replace(entry, mode="0755")
    if not is_template:
        return replace(entry, data=data), None
    if one.tree:
        entry = replace(entry, path=path.removesuffix(TEMPLATE))
    try:
        return entry, data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{one.source or path} is a template and not UTF-8") from None


def _bounded(entries: Sequence[Entry]) -> list[Entry]:
    """The files that fit; what does not is an error, and none of the others."""
    whole = 0
    found = []
    for entry in entries:
        whole += len(entry.data)
        found.append(
            entry
            if whole <= MAX_ALL
            else replace(
                entry,
                data=b"",
                error=f"the files of the node have more than {MAX_ALL >> 20} MiB together",
            )
        )
    return found
