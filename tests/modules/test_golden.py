"""Version 1 of the module protocol keeps working: a module of that time attaches to the head of
today."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from layercake.modules.declared import SiteModule
from tests.modules.conftest import Open

GOLDEN = Path(__file__).resolve().parent / "golden"
TODAY = Path(__file__).resolve().parents[2] / "layercake/moduleapi/module.proto"


def fields(proto: Path, scratch: Path) -> set[tuple[str, ...]]:
    """Every field of a proto file: message, number, name, type, label, and oneof or not."""
    out = scratch / f"{proto.stem}.set"
    command = [
        "-m",
        "grpc_tools.protoc",
        "-I",
        str(proto.parent),
        f"--descriptor_set_out={out}",
        proto.name,
    ]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    (file,) = FileDescriptorSet.FromString(out.read_bytes()).file

    def of(message: DescriptorProto) -> set[tuple[str, ...]]:
        own = {
            (
                file.package,
                message.name,
                *map(
                    str, (f.number, f.name, f.type, f.type_name, f.label, f.HasField("oneof_index"))
                ),
            )
            for f in message.field
        }
        return own.union(*(of(inner) for inner in message.nested_type))

    return set().union(*(of(message) for message in file.message_type))


def test_fields_are_only_ever_added(tmp_path: Path) -> None:
    before, today = fields(GOLDEN / "module_v1.proto", tmp_path), fields(TODAY, tmp_path)
    assert len(before) > 40
    assert before <= today


@pytest.mark.root
def test_a_module_of_version_1_is_served(site_with: Open, tmp_path: Path) -> None:
    stopped = tmp_path / "stopped"
    command = [sys.executable, str(GOLDEN / "stub.py"), str(stopped)]
    old = SiteModule(
        command=command, declares=str(GOLDEN / "module.yaml"), settings={"colour": "blue"}
    )
    with site_with({"old": old}) as site:
        node = site.states()["h0"]
        (dump,) = site.api("POST", "/v1/calls/old.dump", {})["answers"]
        told: list[list[Any]] = dump["answer"]
        by_kind = {kind: [t[1:] for t in told if t[0] == kind] for kind in (t[0] for t in told)}

        assert told[0][0] == "settings"
        settings = told[0][1]
        assert settings["colour"] == "blue"
        assert settings["interface"] == "br0", (
            "to version 1 the head's own facts are among the settings"
        )
        assert set(settings) >= {
            "address",
            "prefix",
            "gateway",
            "dns",
            "head_url",
            "sync_address",
            "data_dir",
        }
        record = {
            "name": "h0",
            "macs": ["52:54:00:00:02:0a"],
            "ip": "10.97.0.10",
            "arch": "x86_64",
            "firmware": "bios",
        }
        assert [node["id"], record] in by_kind["node_changed"]
        assert told.index(["ready"]) > 0
        assert [n for n, _ in by_kind["node_state"]][-1] == node["id"]

        assert [(m[1], m[2]) for m in by_kind["mutate"]] == [
            ("old-discover", 1),
            ("old-mend", 1),
            ("old-mend", 2),
        ]
        (failed,) = [
            e for e in site.history("h0", "mutation.failed") if e["data"]["mutation"] == "old-mend"
        ]
        assert "cannot do it: told to fail (hint: ask again)" in failed["text"]
        assert node["state"]["old"] == "GOOD"
        (event,) = site.history("h0", "old.done")
        assert (event["severity"], event["text"], event["data"]) == (
            "warning",
            "done",
            {"attempt": 2},
        )

        (row,) = site.api("POST", "/v1/calls/old.fail", {"range": "h0"})["answers"]
        assert (row["ok"], row["error"], row["hint"]) == (
            False,
            "cannot answer: told to fail",
            "ask for something else",
        )
        (status,) = [s for s in site.api("GET", "/v1/status")["services"] if s["name"] == "old"]
        assert (status["state"], status["restarts"]) == ("running", 0)
    assert json.loads(stopped.read_text()) == ["stop"]
