"""The image set on disk, for an agent that starts again.

RUN/image-set.json          what is wanted, what failed, and the number of the newest instance
RUN/images/ID.json          one instance
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from imageapi.node.container.process import Process
from imageapi.node.imageset.plan import Failure, Instance, Phase
from imageapi.spec.image import ImageSpec, parse_image, parse_images
from imageapi.spec.state import LastError
from layercake.base.files import read_json, write_json


@dataclass(frozen=True, slots=True)
class SetRecord:
    """What stands in RUN/image-set.json."""

    wanted: tuple[ImageSpec, ...] = ()
    counter: int = 0
    failures: Mapping[str, Failure] = field(default_factory=dict)


class Records:
    """Reads and writes these files, each in one step."""

    def __init__(self, run: Path) -> None:
        self._file = run / "image-set.json"
        self.instances = run / "images"
        self.instances.mkdir(parents=True, exist_ok=True)

    def save_set(self, record: SetRecord) -> None:
        """Writes down what is wanted and what failed."""
        failures = {
            name: [f.count, f.text, f.retry_at, f.cause.name] for name, f in record.failures.items()
        }
        write_json(
            self._file,
            {
                "wanted": [s.to_wire() for s in record.wanted],
                "counter": record.counter,
                "failures": failures,
            },
        )

    def load_set(self) -> SetRecord:
        """What an earlier agent wrote down; nothing is wanted if there was none."""
        data = read_json(self._file)
        if data is None:
            return SetRecord()
        failures = {
            name: Failure(f[0], f[1], f[2], LastError[f[3]])
            for name, f in data.get("failures", {}).items()
        }
        return SetRecord(parse_images(data["wanted"]), data["counter"], failures)

    def save(self, instance: Instance) -> None:
        """Writes an instance down."""
        data = {
            "id": instance.id,
            "spec": instance.spec.to_wire(),
            "phase": instance.phase.name,
            "pid": instance.process.pid,
            "started": instance.process.started,
            "since": instance.since,
            "health": instance.health,
            "trouble": instance.trouble,
            "stale": instance.stale,
        }
        write_json(self.instances / f"{instance.id}.json", data)

    def load(self) -> list[Instance]:
        """The instances that an earlier agent wrote down."""
        instances = []
        for file in sorted(self.instances.glob("*.json")):
            data = read_json(file)
            process = Process(data["pid"], data["started"])
            instances.append(
                Instance(
                    data["id"],
                    parse_image(data["spec"]),
                    Phase[data["phase"]],
                    process,
                    data["since"],
                    data.get("health", ""),
                    data.get("trouble", ""),
                    data.get("stale", False),
                )
            )
        return instances

    def forget(self, name: str) -> None:
        """Deletes the record of an instance; none is fine."""
        (self.instances / f"{name}.json").unlink(missing_ok=True)
