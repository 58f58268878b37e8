"""Secrets: read at use, never shown, warned about when open to others."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path

import msgspec
import pytest

from layercake.base.secrets import Secret, SecretRef, resolve
from layercake.kraken.errors import InputError


def test_a_secret_never_shows_itself() -> None:
    secret = Secret("hunter2")
    for text in (repr(secret), str(secret), f"{secret}", f"{secret:>20}", f"{[secret]}"):
        assert "hunter2" not in text
    for leak in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            leak(secret)
    assert secret.reveal() == "hunter2"
    assert secret == Secret("hunter2") and secret != Secret("x") and secret != "hunter2"


def test_a_private_file_gives_its_line_without_warning(tmp_path: Path) -> None:
    path = tmp_path / "pw"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    warnings: list[str] = []
    assert resolve(SecretRef(file=str(path)), warn=warnings.append).reveal() == "hunter2"
    assert not warnings


def test_a_file_open_to_others_warns(tmp_path: Path) -> None:
    path = tmp_path / "pw"
    path.write_text("hunter2\n")
    path.chmod(0o644)
    warnings: list[str] = []
    assert resolve(SecretRef(file=str(path)), warn=warnings.append).reveal() == "hunter2"
    assert len(warnings) == 1 and "mode 0644" in warnings[0] and "hunter2" not in warnings[0]


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two\nlines\n", b"\xff\xfe", b"x" * 5000, b"a\0b"]
)
def test_a_file_that_holds_no_secret_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pw"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(InputError, match="cannot read secret"):
        resolve(SecretRef(file=str(path)))


def test_a_missing_file_a_directory_and_a_fifo_are_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "fifo"):
        with pytest.raises(InputError, match="cannot read secret"):
            resolve(SecretRef(file=str(path)))


def test_the_environment_is_asked() -> None:
    assert resolve(SecretRef(env="PW"), environ={"PW": "x"}).reveal() == "x"
    with pytest.raises(InputError, match="PW is not set"):
        resolve(SecretRef(env="PW"), environ={})


def test_a_reference_is_exactly_one_of_the_two() -> None:
    for record in ({}, {"file": "/a", "env": "B"}):
        with pytest.raises(InputError):
            msgspec.convert(record, SecretRef)
    ref = SecretRef(env="A")
    assert ref.to_record() == {"env": "A"}
    assert msgspec.convert(ref.to_record(), SecretRef) == ref
