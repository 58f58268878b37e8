"""What is written into config.yaml: what version 0.1 does not know stands there only where it is
not as usual."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import yaml

from layercake.agents import pki
from layercake.agents.settings import SyncSettings
from layercake.head import settings
from layercake.head.settings import Settings
from layercake.inventory.problems import InventoryErrors
from powerman.settings import PowerSettings
from pxe.settings import BootSettings


def written(directory: Path, **sections: msgspec.Struct) -> dict[str, dict[str, object]]:
    """The file as it stands there."""
    made = Settings(
        interface="lo", address="127.0.0.1", sync=SyncSettings(port=0), sections=sections
    )
    settings.save(directory, made)
    read = settings.load(directory)
    assert {name: read.sections[name] for name in sections} == sections
    found: dict[str, dict[str, object]] = yaml.safe_load(
        (directory / settings.FILE_NAME).read_text()
    )
    return found


def test_newer_settings_are_written_only_when_they_say_something(tmp_path: Path) -> None:
    usual = written(tmp_path)
    assert not {"join_s", "step_s"} & usual["boot"].keys() and "attempts" in usual["boot"]
    assert not {"read_s", "on_s", "off_s"} & usual["power"].keys() and "poll_s" in usual["power"]
    assert not {"start_s", "stop_s"} & usual["images"].keys()
    own = written(tmp_path, boot=BootSettings(join_s=3600.0), power=PowerSettings(on_s=99.0))
    assert (
        own["boot"]["join_s"] == 3600.0
        and "step_s" not in own["boot"]
        and own["power"]["on_s"] == 99.0
    )


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://head",
        "https://head.example.org:8443",
        "https://rack_7-head.example.org/",
        "https://xn--bcher-kva.example:1",
        "https://192.0.2.7:65535",
        "https://[2001:db8::7]:8443",
    ],
)
def test_where_people_open_the_dashboard_can_be_in_the_certificate(
    tmp_path: Path, url: str
) -> None:
    settings.save(tmp_path, Settings(interface="lo", address="127.0.0.1", dashboard_url=url))
    read = settings.load(tmp_path)
    assert read.dashboard_url == url.rstrip("/")
    pki.create(tmp_path / "pki", *read.certificate_names)


@pytest.mark.parametrize(
    "url",
    [
        "https://bücher.example:8443",
        "https://head.example.org :8443",
        "https://head example.org",
        " https://head.example.org",
        "https://head.example.org:",
        "https://head.example.org:0",
        "https://head.example.org:65536",
        "https://head.example.org:8443\n",
        "https://head.example.org:٨٤٤٣",
        "https://192.0.2.777",
        "https://[head]",
        "https://[::7%eth0]",
        "https://:8443",
        "https://me@head.example.org",
        "https://head.example.org/dashboard",
        "http://head.example.org",
    ],
)
def test_where_nobody_can_open_the_dashboard_is_refused_by_the_settings_name(
    tmp_path: Path, url: str
) -> None:
    settings.save(tmp_path, Settings(interface="lo", address="127.0.0.1", dashboard_url=url))
    with pytest.raises(InventoryErrors, match=r"dashboard_url: .* is not the URL of a server"):
        settings.load(tmp_path)
