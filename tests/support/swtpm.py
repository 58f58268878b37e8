"""A TPM in software (swtpm), with a certificate of an authority of its own, spoken to as the node
does it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from patience import patience

from minos.tpm.commands import Tpm
from minos.tpm.device import MOST
from minos.tpm.wire import SHA256, sized, u8, u16, u32
from tests.support.servers import answers, connected

_EXTEND, _FLUSH = 0x182, 0x165


class Wire:
    """A connection to it (minos.tpm.device.Transport)."""

    def __init__(self, path: Path) -> None:
        self._socket = connected(path)
        self._socket.settimeout(patience(20))

    def exchange(self, command: bytes) -> bytes:
        self._socket.sendall(command)
        return self._socket.recv(MOST)

    def close(self) -> None:
        """As the kernel's resource manager does it, what was made is gone."""
        for handle in (*range(0x80000000, 0x80000003), *range(0x03000000, 0x03000003)):
            self.exchange(u16(0x8001) + u32(14) + u32(_FLUSH) + u32(handle))
        self._socket.close()


class SoftTpm:
    """One TPM. `authority` is the directory of the one that gives it its certificate, None for one
    without; with `ecc` the certificate is for a key on P-384, and there is none for RSA."""

    def __init__(self, directory: Path, authority: Path | None, *, ecc: bool = False) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._extended: list[tuple[int, bytes]] = []
        (directory / "state").mkdir(parents=True)
        config = directory / "setup.conf"
        config.write_text(
            "active_pcr_banks = sha256\n" + ("" if authority is None else self._localca(authority))
        )
        words = [] if authority is None else ["--create-ek-cert", *(["--ecc"] if ecc else [])]
        subprocess.run(
            [
                "swtpm_setup",
                "--tpm2",
                "--tpmstate",
                str(directory / "state"),
                "--config",
                str(config),
                *words,
                "--overwrite",
            ],
            check=True,
            capture_output=True,
        )

    def _localca(self, authority: Path) -> str:
        authority.mkdir(exist_ok=True)
        config, empty = self.directory / "localca.conf", self.directory / "empty.opt"
        empty.write_text("")
        config.write_text(
            f"statedir = {authority}\nsigningkey = {authority}/signkey.pem\n"
            f"issuercert = {authority}/issuercert.pem\ncertserial = {authority}/certserial\n"
        )
        return (
            f"create_certs_tool = /usr/bin/swtpm_localca\ncreate_certs_tool_config = {config}\n"
            f"create_certs_tool_options = {empty}\n"
        )

    def boot_again(self) -> None:
        """It is reset, and what was booted is as before."""
        extended = list(self._extended)
        self.start()
        for register, digest in extended:
            self.extend(register, digest)

    def start(self) -> None:
        """Switches it on: its registers are as after a reset."""
        self.stop()
        self._extended = []
        place = self.directory / "wire"
        place.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                "swtpm",
                "socket",
                "--tpm2",
                "--tpmstate",
                f"dir={self.directory}/state",
                "--server",
                f"type=unixio,path={place}",
                "--ctrl",
                f"type=unixio,path={self.directory}/control",
                "--flags",
                "not-need-init,startup-clear",
            ]
        )
        answers(place, self._process)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def wire(self) -> Wire:
        return Wire(self.directory / "wire")

    def extend(self, register: int, digest: bytes) -> None:
        """Puts something into a register, as firmware does."""
        self._extended.append((register, digest))
        password = u32(0x40000009) + sized(b"") + u8(0) + sized(b"")
        body = u32(register) + u32(len(password)) + password + u32(1) + u16(SHA256) + digest
        wire = self.wire()
        answer = wire.exchange(u16(0x8002) + u32(10 + len(body)) + u32(_EXTEND) + body)
        wire.close()
        assert answer[6:10] == bytes(4), answer.hex()

    def registers(self, *numbers: int) -> dict[int, bytes]:
        wire = self.wire()
        try:
            return Tpm(wire).registers(numbers)
        finally:
            wire.close()
