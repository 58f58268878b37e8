"""Whether nodes can be booted: a boot set is there for their architecture and their profile."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from layercake.base.text import nearest
from layercake.inventory.nodes.merging import MergedNode
from layercake.inventory.problems import Mark, Problems


class BootSetCheck:
    """The architectures, and the profiles with the architecture of each, that boot sets are there
    for; None where nobody knows."""

    def __init__(
        self, problems: Problems, arches: Collection[str] | None, profiles: Mapping[str, str] | None
    ) -> None:
        self._problems = problems
        self._arches = arches
        self._profiles = profiles

    def check(self, node: MergedNode, arch: str, firmware: str, profile: str) -> None:
        """Reports what keeps a node from being booted."""
        self._check_firmware(node, arch, firmware)
        self._check_arch(node, arch)
        if not node.any_broken("arch", "profile"):
            self._check_profile(node, arch, profile)

    def _check_firmware(self, node: MergedNode, arch: str, firmware: str) -> None:
        if arch != "aarch64" or firmware != "bios" or node.any_broken("arch", "firmware"):
            return
        self._problems.add(
            _mark(node, "firmware", "arch"),
            f"node {node.label}: aarch64 has no BIOS",
            "write firmware: uefi",
        )

    def _check_arch(self, node: MergedNode, arch: str) -> None:
        if self._arches is None or arch in self._arches or node.any_broken("arch"):
            return
        self._problems.add(
            _mark(node, "arch"),
            f"node {node.label}: no boot set is for {arch}",
            f"`layercake profile build NAME --arch {arch}` makes one; there are sets for "
            f"{', '.join(self._arches)}",
        )

    def _check_profile(self, node: MergedNode, arch: str, profile: str) -> None:
        known = self._profiles
        if known is None or (self._arches is not None and arch not in self._arches):
            return
        mark = _mark(node, "profile", "arch")
        if profile and profile not in known:
            self._problems.add(
                mark,
                f"node {node.label}: no boot set is of profile {profile}",
                f"`layercake profile build {profile}` makes one; "
                f"{nearest(profile, filter(None, known))}",
            )
        elif known.get(profile, arch) != arch:
            sets = (
                f"the boot sets of profile {profile} are"
                if profile
                else "the site's default boot set is"
            )
            others = ", ".join(sorted(name for name, its in known.items() if name and its == arch))
            self._problems.add(
                mark,
                f"node {node.label}: {sets} for {known[profile]}, the node is of {arch}",
                f"write one for {arch} as its profile: {others}"
                if others
                else f"`layercake profile build NAME --arch {arch}` makes a profile for it",
            )


def _mark(node: MergedNode, *keys: str) -> Mark:
    """Where the first of these keys stands that the node has, else where the node does."""
    return next((node.fields[key].mark for key in keys if key in node.fields), node.mark)
