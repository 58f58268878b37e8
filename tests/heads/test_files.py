"""The files that heads share: which they are, and that a copy is the leader's, whatever happens on
the way."""

from __future__ import annotations

import contextlib
import hashlib
import os
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest

from layercake.agents import pki
from layercake.agents.pki import Authority
from layercake.features.heads.node_routes import FileRequests
from layercake.heads.copying import FILES, FileCopies, HeadLink
from layercake.heads.files import OWN, FileEntry, Manifest, SharedFiles, check, is_shared, marks
from layercake.heads.log import Leader, SharedLog, Term
from layercake.heads.standby import HeadSays
from layercake.kraken.errors import OperationFailed, Refused
from tests.support import headroutes
from tests.support.disk import nearly_full
from tests.support.headroutes import ADDRESS


@pytest.mark.parametrize(
    "path",
    [
        "pki/ca.key",
        "images/ab12.squashfs",
        "images/index.json",
        "boot/b1/vmlinuz",
        "secrets/bmc/password",
        "secrets/x.lock",
        "tokens.json",
        "inventory.git/objects/ab/cdef",
        "heads/store-ca.key",
    ],
)
def test_what_heads_share(path: str) -> None:
    assert is_shared(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../pki/ca.key",
        "pki/../config.yaml",
        "pki//ca.key",
        "./pki/ca.key",
        "pki/ca.key/",
        "pki/./ca.key",
        "pki/a\nb",
        "images/.x.partial",
        "images/a.copying",
        "images/" + "a" * 600,
        "inventory.git/index.lock",
        "layercake.db-journal",
        "etc",
        *OWN,
        "log/powerman.log",
        "heads/store/member/wal",
    ],
)
def test_what_no_head_takes_from_another(path: str) -> None:
    assert not is_shared(path)


def _fill(directory: Path) -> None:
    for path, data in {
        "images/index.json": b"[]",
        "images/ab.squashfs": b"hsqs" + os.urandom(3 << 20),
        "boot/b1/vmlinuz": b"kernel",
        "secrets/bmc": b"geheim",
        "config.yaml": b"interface: lo",
        "layercake.db": b"x",
        "guests.json": b"{}",
    }.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(data)
        (directory / path).chmod(0o600)
    (directory / "heads").mkdir(exist_ok=True)


def _content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and is_shared(str(path.relative_to(directory)))
    }


def test_a_file_is_read_again_only_when_it_changed(tmp_path: Path) -> None:
    _fill(tmp_path)
    first = SharedFiles(tmp_path).manifest()
    secret = tmp_path / "secrets/bmc"
    facts = secret.stat()
    # Nobody who looks at inode, size and time sees this: what was known of it is believed.
    secret.write_bytes(b"GEHEIM")
    os.utime(secret, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert SharedFiles(tmp_path).manifest() == first
    os.utime(secret)
    assert SharedFiles(tmp_path).manifest().mark != first.mark


def test_what_changes_by_itself_has_a_mark_of_its_own(tmp_path: Path) -> None:
    _fill(tmp_path)
    files = SharedFiles(tmp_path)
    first = files.manifest()
    (tmp_path / "guests.json").write_text("{'a': 1}")
    second = files.manifest()
    assert first.mark == second.mark
    assert first.later != second.later


def _manifest(*files: FileEntry) -> Manifest:
    return Manifest(*marks(files), list(files))


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        (_manifest(FileEntry("../x", 1, "a")), "do not share"),
        (_manifest(FileEntry("pki/ca.pem", -1, "a")), "do not share"),
        (_manifest(FileEntry("pki/a", 1, "a"), FileEntry("pki/a", 1, "b")), "cannot be used"),
        (_manifest(FileEntry("boot/a", 1, "a"), FileEntry("boot/a/b", 1, "b")), "cannot be used"),
        (Manifest("no", "no", [FileEntry("pki/a", 1, "a")]), "mark"),
    ],
    ids=["outside", "size", "twice", "folder", "mark"],
)
def test_a_list_that_cannot_be_used_is_refused(manifest: Manifest, why: str) -> None:
    with pytest.raises(OperationFailed, match=why):
        check(manifest)


@pytest.mark.parametrize("backwards", [False, True], ids=["as-they-are", "backwards"])
@pytest.mark.parametrize("when", ["objects", "refs", "", "objects/ab", "objects/pack"])
def test_what_is_committed_while_files_are_listed_is_listed_whole_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backwards: bool, when: str
) -> None:
    repository = tmp_path / "inventory.git"
    old, new = (repository / f"objects/{name}/1" for name in ("ab", "cd"))
    for path in (old, repository / "refs/heads/main", repository / "objects/pack/1.pack"):
        path.parent.mkdir(parents=True)
        path.write_text("ab")
    listed = Path.iterdir

    def list_and_commit(directory: Path) -> Iterator[Path]:
        found = sorted(listed(directory), reverse=backwards)
        if directory == repository / when and not new.exists():
            new.parent.mkdir()
            new.write_text("cd")
            (repository / "refs/heads/main").write_text("cd")
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", list_and_commit)
    files = {one.path: one for one in SharedFiles(tmp_path).manifest().files}
    assert new.exists()
    committed = hashlib.sha256(b"cd").hexdigest()
    names_new = files["inventory.git/refs/heads/main"].sha256 == committed
    assert not names_new or "inventory.git/objects/cd/1" in files


def test_nothing_is_removed_by_an_empty_list(tmp_path: Path) -> None:
    _fill(tmp_path)
    with pytest.raises(OperationFailed, match="names none"):
        SharedFiles(tmp_path).remove_others(_manifest())
    assert (tmp_path / "images/index.json").exists()


class _Heads:
    """A leader's files over TLS, and a head that follows."""

    def __init__(self, directory: Path, shared: SharedLog, term: Term) -> None:
        self.here = directory / "leader"
        self.there = directory / "follower"
        pki.create(self.here / "pki", ADDRESS)
        pki.create(self.there / "pki", ADDRESS)
        _fill(self.here)
        (self.there / "heads").mkdir()
        self.authority = Authority(self.here / "pki")
        (self.there / "pki/ca.pem").write_bytes((self.here / "pki/ca.pem").read_bytes())
        own = self.authority.issue_head(ADDRESS)
        (self.there / "pki/server.pem").write_text(own["cert"])
        (self.there / "pki/server.key").write_text(own["key"])
        self.term = term
        self.shared = shared
        self.changed: list[str] = []
        self.leader = FileCopies(self.here, "head1", shared, self.link(self.here), self._changed)
        self.follower = FileCopies(
            self.there, "head2", shared, self.link(self.there), self._changed
        )
        self.url = ""

    def link(self, directory: Path) -> HeadLink:
        """How a head asks another."""
        return HeadLink(partial(pki.between_heads, Authority(directory / "pki")))

    def _changed(self, paths: Sequence[str]) -> None:
        self.changed = list(paths)

    async def serve(self, stack: contextlib.AsyncExitStack) -> None:
        """Serves the leader's files."""
        routes = FileRequests(self.here, self.leader).routes()
        self.url = await headroutes.serve(stack, routes, self.authority)


@pytest.fixture
async def heads(tmp_path: Path, shared: SharedLog) -> AsyncIterator[_Heads]:
    lease = await shared.store.grant(60)
    term = await shared.lead(await shared.state(), Leader("head1", "", 0.0), lease)
    assert term is not None
    found = _Heads(tmp_path, shared, term)
    async with contextlib.AsyncExitStack() as stack:
        await found.serve(stack)
        await found.leader.publish(term)
        yield found
    await shared.store.revoke(lease)


async def test_a_follower_has_what_the_leader_has(heads: _Heads) -> None:
    own = (heads.there / "pki/server.key").read_bytes()
    await heads.follower.follow(heads.url)
    assert _content(heads.there) == _content(heads.here)
    assert heads.follower.mark == heads.leader.mark
    assert (heads.there / "pki/server.key").read_bytes() == own
    assert not (heads.there / "config.yaml").exists()
    assert (heads.there / "secrets/bmc").stat().st_mode & 0o777 == 0o600
    assert heads.changed.index("images/ab.squashfs") < heads.changed.index("images/index.json")


async def test_a_follower_removes_what_is_gone(heads: _Heads) -> None:
    await heads.follower.follow(heads.url)
    (heads.here / "boot/b1/vmlinuz").unlink()
    (heads.here / "boot/b1").rmdir()
    await heads.leader.publish(heads.term)
    await heads.follower.follow(heads.url)
    assert heads.changed == ["boot/b1/vmlinuz"]
    assert not (heads.there / "boot/b1").exists()


async def test_what_a_follower_changed_itself_is_the_leaders_again(heads: _Heads) -> None:
    await heads.follower.follow(heads.url)
    (heads.there / "secrets/bmc").write_text("another")
    again = FileCopies(heads.there, "head2", heads.shared, heads.link(heads.there), print)
    await again.follow(heads.url)
    assert (heads.there / "secrets/bmc").read_bytes() == b"geheim"


async def test_a_folder_that_is_a_link_is_not_followed(heads: _Heads, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (heads.there / "secrets").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OperationFailed, match="symbolic link"):
        await heads.follower.follow(heads.url)
    assert not any((tmp_path / "elsewhere").iterdir())


async def test_files_that_differ_from_their_list_are_not_taken(heads: _Heads) -> None:
    (heads.here / "secrets/bmc").write_bytes(b"GEHEIM")
    with pytest.raises(OperationFailed, match="changed on its way"):
        await heads.follower.follow(heads.url)
    assert not (heads.there / "secrets/bmc").exists()
    assert heads.follower.mark == ""


@pytest.mark.parametrize("who", ["nobody", "node", "person"])
async def test_only_heads_get_them(heads: _Heads, who: str) -> None:
    issued = (
        heads.authority.issue("9a3f7a4e-0000-4000-8000-000000000001", 1)
        if who == "node"
        else heads.authority.issue_client(pki.client_name("ab12"))
    )
    assert issued is not None

    def context() -> ssl.SSLContext:
        if who != "nobody":
            (heads.there / "pki/server.pem").write_text(issued["cert"])
            (heads.there / "pki/server.key").write_text(issued["key"])
            return pki.between_heads(Authority(heads.there / "pki"))
        return ssl.create_default_context(cafile=str(heads.here / "pki/ca.pem"))

    link = HeadLink(context)
    with pytest.raises(OperationFailed, match=f"{FILES}: it answers 403"):
        await link.copy(heads.url, heads.there, SharedFiles(heads.there))


def _says(head: str, files: str) -> HeadSays:
    return HeadSays(head, "", "", leads=False, entry=0, trouble="", at=0.0, files=files)


async def test_a_head_that_is_behind_leaves_the_lead_to_one_that_is_not(heads: _Heads) -> None:
    await heads.follower.follow(heads.url)
    assert await heads.follower.may_lead([_says("head3", heads.leader.mark)])
    (heads.here / "secrets/new").write_text("x")
    await heads.leader.publish(heads.term)
    assert not await heads.follower.may_lead([_says("head3", heads.leader.mark)])
    assert await heads.follower.may_lead([_says("head3", "behind"), _says("head2", "x")])


async def test_a_leader_without_all_files_changes_none(heads: _Heads) -> None:
    await heads.follower.follow(heads.url)
    (heads.here / "secrets/new").write_text("x")
    await heads.leader.publish(heads.term)
    mark = heads.leader.mark
    await heads.follower.publish(heads.term)  # it leads now
    with pytest.raises(Refused, match="without all files"):
        heads.follower.check()
    assert await heads.follower.with_all([_says("head1", mark)]) == "head1"
    await heads.leader.follow("")
    assert (heads.here / "secrets/new").exists()
    await heads.follower.accept(heads.term)
    heads.follower.check()


async def test_a_leader_that_has_changed_files_while_it_was_off_lacks_none(heads: _Heads) -> None:
    (heads.here / "secrets/new").write_text("x")
    again = FileCopies(heads.here, "head1", heads.shared, heads.link(heads.here), print)
    await again.publish(heads.term)
    again.check()
    await heads.follower.follow(heads.url)


async def test_what_changes_by_itself_on_its_way_comes_later_and_is_no_trouble(
    heads: _Heads,
) -> None:
    newest = heads.here / "inventory.git/refs/heads/main"
    newest.parent.mkdir(parents=True, exist_ok=True)
    newest.write_text("one")
    (heads.here / "secrets/new").write_text("x")
    await heads.leader.publish(heads.term)
    newest.write_text("two, which is longer")
    own = heads.there / "inventory.git/objects/ab/cdef"
    own.parent.mkdir(parents=True)
    own.write_text("what the follower's own branch has")
    await heads.follower.follow(heads.url)
    assert heads.follower.mark == heads.leader.mark
    assert (heads.there / "secrets/new").exists()
    assert own.exists(), "the branch is as it was, and whole"
    await heads.leader.publish(heads.term)
    await heads.follower.follow(heads.url)
    assert _content(heads.there) == _content(heads.here)


async def test_a_leader_whose_disk_is_full_says_so_and_names_files_when_it_is_not(
    heads: _Heads,
) -> None:
    """What was done is answered all the same: who waits for the copies gets no other error."""
    (heads.here / "secrets/new").touch()
    before = heads.leader.mark
    with nearly_full(0), pytest.raises(OperationFailed, match="heads/files: File too large"):
        await heads.leader.publish(heads.term)
    assert heads.leader.mark == before
    await heads.leader.publish(heads.term)
    assert heads.leader.mark != before


def test_a_manifest_is_small_on_the_wire() -> None:
    entry = FileEntry("images/" + "a" * 64 + ".squashfs", 1 << 30, "b" * 64, False)
    assert len(msgspec.json.encode(entry)) < 180
