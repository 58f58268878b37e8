"""What is written into config.yaml: what version 0.1 does not know stands there only where it is not as usual."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from layercake.head import settings
from layercake.head.settings import Settings, SyncSettings
from powerman.settings import PowerSettings
from pxe.settings import BootSettings


def written(directory: Path, **sections: msgspec.Struct) -> dict[str, dict[str, object]]:
    """The file as it stands there."""
    made = Settings(interface="lo", address="127.0.0.1", sync=SyncSettings(port=0), sections=sections)
    settings.save(directory, made)
    read = settings.load(directory)
    assert {name: read.sections[name] for name in sections} == sections
    found: dict[str, dict[str, object]] = yaml.safe_load((directory / settings.FILE_NAME).read_text())
    return found


def test_newer_settings_are_written_only_when_they_say_something(tmp_path: Path) -> None:
    usual = written(tmp_path)
    assert not {"join_s", "step_s"} & usual["boot"].keys() and "attempts" in usual["boot"]
    assert not {"read_s", "on_s", "off_s"} & usual["power"].keys() and "poll_s" in usual["power"]
    assert not {"start_s", "stop_s"} & usual["images"].keys()
    own = written(tmp_path, boot=BootSettings(join_s=3600.0), power=PowerSettings(on_s=99.0))
    assert own["boot"]["join_s"] == 3600.0 and "step_s" not in own["boot"] and own["power"]["on_s"] == 99.0
