"""`layercake image build`, `diff` and `history`, over the real builder and, for the latter two, the
head's own store."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from imageapi.build.squash import squash
from imageapi.store.store import ImageStore
from layercake.cli.main import main
from layercake.features.images.routes import ImageRequest
from layercake.kraken.errors import InputError
from tests.cli.canned_api import CannedApi
from tests.support.world import World

pytestmark = pytest.mark.root


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Iterator[CannedApi]:
    folder = Path(tempfile.mkdtemp(prefix="lc"))
    fake = CannedApi()
    fake.answers["GET /v1/status"] = (200, {})
    fake.answers["POST /v1/images"] = add
    fake.start(folder / "api.sock")
    monkeypatch.setenv("LAYERCAKE_SOCKET", str(folder / "api.sock"))
    yield fake
    fake.stop()
    shutil.rmtree(folder)


def add(_: object, body: Any) -> tuple[int, Any]:
    """The API's own idea of the request; the file must be there while it is asked."""
    request = msgspec.convert(body, ImageRequest)
    assert Path(request.path).read_bytes()[:4] == b"hsqs"
    return 200, {"image": {"name": request.name, "container": request.container()}}


def test_build_adds_the_image_as_it_wants_to_be_run(
    head: CannedApi, context: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(
            [
                "image",
                "build",
                str(context),
                "web:1",
                "--build-arg",
                "COLOUR=red",
                "--env",
                "MORE=1",
            ]
        )
        == 0
    )
    said = capsys.readouterr()
    assert said.out.startswith("web:1: ") and "runs sh -c 'echo $GREETING'" in said.out
    assert "step 4/7: RUN" in said.err and "packing" in said.err
    method, _, body = head.requests[-1]
    assert method == "POST /v1/images"
    assert (body["name"], body["systemd"], body["workdir"]) == ("web:1", False, "/app")
    assert body["env"] | {"GREETING": "hello", "MORE": "1"} == body["env"]
    assert not Path(body["path"]).exists(), (
        "what was built is in the store; nothing is left of it elsewhere"
    )


def test_a_container_file_says_more_and_its_mistakes_are_found(
    head: CannedApi, context: Path, tmp_path: Path
) -> None:
    more = tmp_path / "web.yaml"
    more.write_text(
        "health: {kind: http, port: 80}\nmounts: [{kind: bind, source: /data, target: /data}]\n"
    )
    assert main(["image", "build", str(context), "web", "--container", str(more)]) == 0
    _, _, body = head.requests[-1]
    assert (body["health"], body["mounts"][0]["target"]) == ({"kind": "http", "port": 80}, "/data")
    asked = len(head.requests)
    for text in ("helth: {}\n", "- x\n", "{", ""):
        more.write_text(text)
        assert main(["image", "build", str(context), "web", "--container", str(more)]) == 2
        assert main(["image", "add", "web", "/x", "--container", str(more)]) == 2
    assert main(["image", "add", "web", "/x", "--container", str(tmp_path / "none")]) == 2
    assert len(head.requests) == asked


def test_output_keeps_the_file_and_says_how_to_add_it(
    context: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAYERCAKE_SOCKET", "/nonexistent")
    out = tmp_path / "web.squashfs"
    assert main(["image", "build", str(context), "web", "--output", str(out)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(
        f"add it: layercake image add web {out} --no-systemd --command "
    ) and last.endswith("--workdir /app")
    assert main(["image", "build", str(context), "web", "--output", str(out), "--json"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert "packing" in said.err and len(said.err.splitlines()) > 2, (
        "a build of many minutes is not silent"
    )
    assert document["container"]["workdir"] == "/app" and document["digest"].startswith("blake2b:")


def test_mistakes_are_found_before_anything_is_built(
    head: CannedApi, context: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (context / "Dockerfile").write_text("FROM scratch\nBOGUS\n")
    assert main(["image", "build", str(context), "../web"]) == 2
    assert main(["image", "build", str(context), "web", "--command", "'"]) == 2
    assert main(["--url", "https://head:8443", "image", "build", str(context), "web"]) == 2
    assert main(["image", "build", str(context), "web"]) == 1
    assert [method for method, _, _ in head.requests] == ["GET /v1/status"]
    monkeypatch.setenv("LAYERCAKE_SOCKET", "/nonexistent")
    assert main(["image", "build", str(context), "web"]) == 3


async def test_history_and_difference_of_what_is_in_the_store(world: World, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    digests = []
    for number in ("1", "2"):
        (tmp_path / "tree/file").write_text(number)
        world.head.part(ImageStore).add(
            squash(tmp_path / "tree", tmp_path / f"{number}.squashfs"),
            "web",
            {"command": ["/init"]},
        )
        digests.append(world.head.part(ImageStore).get("web").digest)
    found = world.ops.images.history("web")["versions"]
    assert [(v["digest"], v["kept"]) for v in found] == [(digests[1], True), (digests[0], True)]
    answer = await world.ops.images.difference(f"web@{digests[0][8:20]}", "web")
    assert (answer["a"]["digest"], answer["b"]["digest"]) == tuple(digests)
    assert [(f["path"], f["what"]) for f in answer["files"]["changed"]] == [("file", ["content"])]
    with pytest.raises(InputError, match="0 versions of web"):
        await world.ops.images.difference("web@ffffffffffff", "web")
    world.head.part(ImageStore).prune(set())
    assert [v["kept"] for v in world.ops.images.history("web")["versions"]] == [True, False]


@pytest.fixture
async def world(tmp_path: Path) -> Any:
    (tmp_path / "head").mkdir()
    found = World(tmp_path / "head")
    found.open()
    yield found
    await found.close_head()
    found.client.close()
