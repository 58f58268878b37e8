"""Runs a Layercake head over a virtual rack, the way an administrator would: by its command line
and its Unix socket.

The demo, the VM tests and the benchmarks share it."""

from __future__ import annotations

import http.client
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headclient import HeadClient, HeadRunError
from headinit import dotted, init
from vrack.rack import Rack

from imageapi.store.manifest import Signer
from minos.build import append_files, profiles, sets
from minos.build.debian import disktools

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("LAYERCAKE_CACHE", Path.home() / ".cache" / "layercake"))
INTERFACE = "br0"


class HeadRun(HeadClient):
    """One head, in the rack's network. `data` is its data directory, `code` where the Layercake is
    that serves: another version, perhaps; `profile` is the boot profile of its boot set, which has
    the programs for disks with `disktools`."""

    def __init__(
        self, rack: Rack, data: Path, profile: str = "virtual", *, disktools: bool = True
    ) -> None:
        super().__init__(Path("/run") / f"{rack.namespace}-api.sock", data / "head.log")
        self.rack = rack
        self.data = data
        self.code, self.profile, self.disktools = ROOT, profile, disktools
        self._whole: dict[str, Any] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the command line needs to find this head."""
        return {
            **os.environ,
            "LAYERCAKE_SOCKET": str(self.socket),
            "PYTHONPATH": str(self.code),
            "COLUMNS": "160",
        }

    def init(self, settings: Mapping[str, Any] | None = None) -> None:
        """Makes the data directory and minOS; `settings` are those that an administrator would
        choose here (nested)."""
        # Outside the rack's network, which has no way to the package registry.
        profiles.fetch(profiles.KNOWN[self.profile], CACHE)
        if self.disktools:
            disktools.pack(platform.machine(), CACHE, lambda text: None)
        first = {"socket": str(self.socket), "boot.ra_prefix": "fd99::/64"}
        init(
            self.data,
            ["ip", "netns", "exec", self.rack.namespace],
            {**first, **dotted(settings or {})},
            interface=INTERFACE,
            cache=CACHE,
            profile=self.profile,
            disktools=self.disktools,
        )

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Edits the settings (nested), which the head reads when it starts."""
        import yaml

        path = self.data / "config.yaml"
        config, self._whole = self._whole or yaml.safe_load(path.read_text()), None
        for section, value in settings.items():
            config[section] = {**config[section], **value} if isinstance(value, Mapping) else value
        if self.rack.secrets is not None:
            config["secrets"] = str(self.rack.secrets.password_file.parent)
        if (
            self.code != ROOT
        ):  # an older version does not know these; they are there again for the newer one
            self._whole = config
            config = {
                key: value
                for key, value in config.items()
                if key not in ("secrets", "more_networks", "files")
            }
            for section, name in (("boot", "dns"), ("images", "privileges")):
                config[section] = {k: v for k, v in config[section].items() if k != name}
        path.write_text(yaml.safe_dump(config))

    def start(self, limit_s: float = 120.0) -> None:
        """Starts the head; returns when its API answers and its services run."""
        self.configure({})
        argv = [sys.executable, "-m", "layercake.cli.main", "serve", "--data-dir", str(self.data)]
        self.serve(
            lambda log: self.rack.exec(
                argv, env=self.environment, cwd=self.code, stdout=log, stderr=log
            ),
            limit_s,
        )

    def stop(self) -> None:
        """Stops the head in an orderly way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9: what a power failure of the head looks like to the nodes."""
        self._end(signal.SIGKILL)

    def boot_set(self, files: Mapping[str, bytes]) -> str:
        """Another boot set: the newest one, with more files in its minOS. Returns its name."""
        boot = self.data / "boot"
        newest, new = sets.all_of(boot)[0], boot / ".another"
        shutil.copytree(newest.directory, new)
        append_files(newest.directory / "minos.img", files, new / "minos.img")
        (new / sets.SIGNATURE).unlink(missing_ok=True)
        sets.sign(new, sets.name_of(new), Signer(self.data / "images" / "signing.key").sign)
        return sets.install_set(boot, new).name

    def cli(
        self, *arguments: str, check: bool = True, timeout: float = 900.0
    ) -> subprocess.CompletedProcess[str]:
        """Runs the command line as a person would."""
        argv = [sys.executable, "-m", "layercake.cli.main", *arguments]
        done = subprocess.run(
            argv,
            cwd=self.code,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode != 0:
            raise HeadRunError(
                f"layercake {' '.join(arguments)}: exit "
                f"{done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done

    def follow(self, arguments: Sequence[str], line: Callable[[str], None]) -> int:
        """Runs the command line as a person would; `line` gets each line as it is printed. Returns
        the exit status."""
        argv = [sys.executable, "-m", "layercake.cli.main", *arguments]
        with subprocess.Popen(
            argv,
            cwd=self.code,
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            assert process.stdout is not None  # noqa: S101 (for the type checker)
            try:
                for text in process.stdout:
                    line(text.rstrip("\n"))
            except BaseException:
                process.kill()
                raise
        return process.returncode

    def nodes(self) -> dict[str, dict[str, Any]]:
        """All nodes by name."""
        return {n["name"]: n for n in self.api("GET", "/v1/nodes")["nodes"]}

    def apply(self, yaml_text: str, *, allow_remove: bool = False) -> Any:
        """Applies an inventory."""
        return self.api(
            "POST",
            "/v1/inventory/apply",
            {"yaml": yaml_text, "file": "rack.yaml", "allow_remove": allow_remove},
        )

    def wait_converged(self, limit_s: float, names: set[str] | None = None) -> float:
        """Waits until the named nodes, or all, are converged."""

        def done() -> bool:
            nodes = self.nodes()
            return all(
                n["status"] == "converged"
                for name, n in nodes.items()
                if names is None or name in names
            )

        return self.wait("nodes converge", done, limit_s)

    def describe(self) -> str:
        """The nodes, their explanations and the end of the head's log: what one wants to read when
        a test fails."""
        try:
            texts = [self.api("GET", f"/v1/nodes/{name}/explain")["text"] for name in self.nodes()]
            events = self.api("GET", "/v1/events?limit=60")["events"]
            texts += [f"{e['at']:.1f} {e['node'] or '-'} {e['kind']} {e['text']}" for e in events]
        except (OSError, HeadRunError, http.client.HTTPException) as error:
            texts = [f"(the head does not answer: {error})"]
        consoles = [
            f"--- console {n.name}\n{self.rack.console(i)[-1500:]}"
            for i, n in enumerate(self.rack.nodes)
            if (self.rack.node_directory(i) / "console.log").exists()
        ]
        return "\n".join([*texts, "--- log", self.log()[-3000:], *consoles])

    def close(self) -> None:
        """Stops the head and removes its socket."""
        self.stop()
        self.socket.unlink(missing_ok=True)
