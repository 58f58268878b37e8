"""The boot sets of the site: which there are, which one a node boots, and the agents that are
handed over out of them."""

from __future__ import annotations

import base64
import hashlib
import logging
import platform
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from imageapi.spec.image import manifest
from imageapi.store.manifest import Signer
from layercake.fleet.boots import Boots
from layercake.kraken.errors import InputError, LayercakeError, NotFound, Refused
from minos.agent.swap import signed
from minos.build import sets
from minos.build.drivers import Drivers
from minos.build.sets import BootSet

log = logging.getLogger("layercake.boots")
DOCUMENT = "boot/default"
OF_PROFILES = "boot/default/"


def arches(sets: Iterable[BootSet]) -> list[str]:
    """The architectures of machines that there are sets for, and that of this machine: one can be
    built."""
    return sorted({platform.machine(), *(s.architecture for s in sets)})


class BootSets:
    """What is below boot/ in the data directory. `sign` is the signature of the head's authority,
    None on a head without one; `signer` is the key by which sets are signed as they are built."""

    def __init__(
        self, directory: Path, sign: Callable[[bytes], bytes | None], signer: Signer
    ) -> None:
        self.directory = directory
        self._signer = signer
        self._seen: dict[str, tuple[tuple[object, ...], str]] = {}
        self.sign = sign
        self._order = lru_cache(maxsize=8)(self._signed_agent)
        self._told_of = lru_cache(maxsize=16)(self._announced)
        self._drivers = lru_cache(maxsize=2)(self._opened)  # one takes 13 MB
        self.default = ""
        self.of_profiles: dict[str, str] = {}
        self._architectures: dict[str, str] = {}
        self._kernels: dict[str, str] = {}

    def load(self, documents: Mapping[str, bytes]) -> None:
        """Takes over what an earlier head called the default, of the site and of profiles. Without
        one it is the newest that there is for machines as this one, and of a profile the oldest: no
        set is given to nodes just because it was built."""
        default = documents.get(DOCUMENT, b"").decode()
        adopted = sets.adopt(self.directory, clear=True)
        found = self.all()
        newest = next((s for s in found if s.architecture == platform.machine()), _NONE)
        self.note(found)
        self.default = (
            default if any(s.name == default for s in found) else (adopted or newest).name
        )
        self.of_profiles = {s.profile.name: s.name for s in found if s.profile is not None}
        names = {s.name for s in found}
        self.of_profiles |= {
            key.removeprefix(OF_PROFILES): name.decode()
            for key, name in documents.items()
            if key.startswith(OF_PROFILES) and name.decode() in names
        }

    def note(self, found: Iterable[BootSet]) -> None:
        """Remembers what is asked often, of sets that are gone too: nodes may still run them."""
        self._architectures = {s.name: s.architecture for s in found}
        self._kernels |= {s.name: s.kernel for s in found}

    def kernel_of(self, name: str) -> str:
        """The release of a set's kernel, "" if it is not known. From memory."""
        return self._kernels.get(name, "")

    def all(self) -> list[BootSet]:
        """All sets, newest first."""
        return sets.all_of(self.directory)

    def is_for(self, name: str, arch: str) -> bool:
        """Whether a set is for machines of an architecture; of one that is not known, nothing
        speaks against it. From memory."""
        return self._architectures.get(name, arch) == arch

    def sign_all(self) -> None:
        """Signs the sets that nobody has signed: once, for those that were built before sets were
        signed."""
        for found in self.all():
            if not (found.directory / sets.SIGNATURE).exists():
                sets.sign(found.directory, found.name, self._signer.sign)

    def reread(self) -> dict[str, str]:
        """Reads the sets again that were touched since. {set: why it is not used any more, "" if it
        is again}. May block."""
        before = {name: why for name, (_, why) in self._seen.items()}
        found = self.all()
        now = {s.name: self._look_at(s.name) for s in found}
        self.note(found)
        new = {
            s.profile.name: s.name
            for s in found
            if s.profile is not None and s.profile.name not in self.of_profiles
        }
        self.of_profiles |= new
        self._seen = {name: found for name, found in self._seen.items() if name in now}
        return {
            name: why
            for name, why in now.items()
            if why != before.get(name, "") or name in new.values()
        }

    def _look_at(self, name: str) -> str:
        mark = sets.mark(self.directory, name)
        seen = self._seen.get(name)
        if seen is None or seen[0] != mark:
            seen = self._seen[name] = (
                mark,
                sets.trouble(self.directory, name, self._signer.signed),
            )
        return seen[1]

    def trouble(self, name: str) -> str:
        """Why a set is not used, "" if it is. From memory."""
        return self._seen.get(name, ((), ""))[1]

    def get(self, name: str) -> BootSet:
        """A set that can be used. Raises NotFound, and Refused for one that is not what was
        signed."""
        found = sets.load(self.directory, name)
        if why := self._look_at(name):
            raise Refused(
                f"cannot use boot set {name}: {why}", hint="build it again: `layercake boot build`"
            )
        self._architectures[name] = found.architecture
        self._kernels[name] = found.kernel
        return found

    def served(self, boots: Boots, profile: str = "", arch: str = "") -> str:
        """What the boot service may give a node: `of`, or "" if that set must not be used. From
        memory."""
        name = self.of(boots, profile, arch)
        return "" if self.trouble(name) else name

    def of_strangers(self) -> dict[str, str]:
        """The sets that machines boot which are discovered, by architecture: the site's default,
        and for others the newest. From memory."""
        own = self._architectures.get(self.default)
        used = [
            (arch, name)
            for name, arch in reversed(self._architectures.items())
            if not self.trouble(name)
        ]
        return {arch: name for arch, name in used if arch != own or name == self.default}

    def of(self, boots: Boots, profile: str = "", arch: str = "") -> str:
        """The set that a node boots next: where a roll took it, or that of its profile, or the
        site's; "" if there is none, or if it is for machines of another architecture than `arch`.
        From memory: it is asked for each node."""
        name = boots.wanted or (self.of_profiles.get(profile, "") if profile else self.default)
        return name if not arch or self.is_for(name, arch) else ""

    def agent(self, name: str) -> bytes:
        """The agent of a set. Raises NotFound, InputError for a set without one, and Refused as
        `get`."""
        path = sets.load(self.directory, name).directory / sets.AGENT
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"cannot hand over the agent of {name}: {error.strerror}",
                hint="build a new set: `layercake boot build`",
            ) from None
        self.get(name)  # after it was read: what was read is what was signed
        return data

    def order(self, boots: Boots) -> dict[str, Any] | None:
        """What a node is told of the agent that it shall have (minos.agent.swap); None if it has
        the one that is wanted, or none can be handed over."""
        if not boots.agent or boots.agent == boots.agent_runs or not boots.agent_runs:
            return None
        if boots.agent == boots.runs:
            return {"set": boots.agent, "ask": boots.ask}  # its own: there is nothing to hand over
        try:
            made = self._order(boots.agent)
        except LayercakeError as error:  # the rest of what the node is told does not depend on it
            log.error("%s", error)
            return None
        return None if made is None else {**made, "ask": boots.ask}

    def part(self, name: str, file: str) -> Mapping[str, Any] | None:
        """What a node that has booted a set is told of a file of it that is mounted there
        (sets.MODULES, sets.DISKTOOLS), as of an image's content (imageapi.spec.image); None for a
        set that has none, or must not be used. From memory, but for the first time."""
        try:
            return None if self.trouble(name) else self._told_of(name, file)
        except (LayercakeError, OSError) as error:
            log.debug("a node gets no %s: %s", file, error)
            return None

    def drivers(self, name: str) -> Drivers | None:
        """The modules of the kernel of a set, one by one; None for a set that has none. Reads it if
        it was touched. Raises NotFound, OperationFailed, and Refused as `get`. May block; one
        thread at a time."""
        found = self.get(name)
        return self._drivers(name) if (found.directory / sets.MODULES).is_file() else None

    def _opened(self, name: str) -> Drivers:
        found = sets.load(self.directory, name)
        inside = found.about.get("modules")
        return Drivers(
            found.directory / sets.MODULES,
            found.kernel,
            map(str, inside) if isinstance(inside, list) else (),
        )

    def _announced(self, name: str, file: str) -> Mapping[str, Any]:
        """Raises LayercakeError, OSError. The digest is that of the file when it was signed:
        nothing needs to be read."""
        found = sets.load(self.directory, name)
        digest = sets.signed_digest(self.directory, name, file, self._signer.signed)
        if not digest:
            raise NotFound(f"cannot find {file} of boot set {name}: it has none")
        size = (found.directory / file).stat().st_size
        said = f"blake2b:{digest}"
        return {
            "digest": said,
            "size": size,
            "signature": self._signer.sign(manifest(said, size, {})),
        }

    def _signed_agent(self, name: str) -> dict[str, Any] | None:
        data = self.agent(name)
        digest = hashlib.blake2b(data, digest_size=32).hexdigest()
        signature = self.sign(signed(name, digest, len(data)))
        return (
            None
            if signature is None
            else {
                "set": name,
                "digest": digest,
                "size": len(data),
                "signature": base64.b64encode(signature).decode(),
            }
        )


_NONE = BootSet("", Path(), 0.0, "", 0, agent=False)
