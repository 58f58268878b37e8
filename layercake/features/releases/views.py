"""What people are shown of releases."""

from __future__ import annotations

from typing import Any

import msgspec

from layercake.features.releases.record import STEPS, Release, ReleaseStep


def release_view(release: Release) -> dict[str, Any]:
    """A release as the API shows it: who asked, each step with its times (seconds since the epoch),
    and what became of the disks. It holds no secret."""
    done = {step.name: step for step in release.steps}
    return {
        "id": release.id,
        "by": release.by,
        "asked": release.asked,
        "ended": release.ended,
        "force": release.force,
        "state": "done"
        if release.done
        else "freed"
        if release.freed_by
        else "abandoned"
        if release.abandoned_by
        else "failed"
        if release.failed
        else "unconfirmed"
        if release.waits
        else "running",
        "abandoned_by": release.abandoned_by,
        "freed_by": release.freed_by,
        "confirmed_by": release.confirmed_by,
        "steps": [
            msgspec.structs.asdict(done.get(name) or ReleaseStep(name=name, began=0.0, tries=0))
            for name in STEPS
        ],
        "disks": [msgspec.structs.asdict(disk) for disk in release.disks],
        "left": list(release.left),
    }
