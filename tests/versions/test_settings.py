"""The settings that this version writes are read by the one before, where nothing new is set."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from layercake.head import settings
from layercake.head.settings import Settings

OLD = Path(__file__).with_name("layercake-0.1.0-py3-none-any.whl")
READ = "import sys, pathlib\nfrom layercake.head import settings\n" + (
    "print(settings.load(pathlib.Path(sys.argv[1])).interface)"
)


def test_version_0_1_reads_settings_in_which_nothing_new_is_set(tmp_path: Path) -> None:
    with zipfile.ZipFile(OLD) as wheel:
        wheel.extractall(tmp_path / "old")
    settings.save(tmp_path, Settings(interface="eth7", address="10.1.0.1"))
    done = subprocess.run(
        [sys.executable, "-c", READ, str(tmp_path)],
        cwd=tmp_path / "old",
        env={"PYTHONPATH": str(tmp_path / "old")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("eth7\n", 0), done.stdout + done.stderr
