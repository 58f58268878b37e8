"""A head that is started again with one module more touches no node: what runs keeps the layout of
its join."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
import pytest

from layercake.head import settings as head_settings
from layercake.modules.declared import SiteModule
from tests.modules.conftest import Open
from tests.modules.test_hostile import DECLARES, ROOT, STUB


@pytest.mark.root
def test_a_module_is_added_under_a_running_node(
    tmp_path: Path, site_with: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "good.yaml").write_text(
        "doc: x\n" + "\n".join(line.strip() for line in DECLARES["good"].splitlines())
    )
    good = SiteModule(
        command=[sys.executable, str(STUB), "good", str(tmp_path)],
        declares=str(tmp_path / "good.yaml"),
    )
    with site_with({}) as site:
        before = site.states()["h0"]["state"]
        assert "good" not in before
        killed = time.time()
        site.kill_head()
        head_settings.save(
            site.data,
            msgspec.structs.replace(head_settings.load(site.data), modules={"good": good}),
        )
        site.start_head()
        site.wait(
            "the new variable is found out",
            lambda: site.states()["h0"]["status"] == "converged",
            120,
        )
        assert site.states()["h0"]["state"] == {**before, "good": "WELL"}
        since = {e["kind"] for e in site.history("h0") if e["at"] >= killed}
        assert since and not since & {"node.joined", "sync.lost"}
