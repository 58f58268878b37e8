"""A here-document in a Dockerfile is refused with its line where buildah knows none."""

from __future__ import annotations

from pathlib import Path

import pytest

from imageapi.build.dockerfile import check, here_document, version_of
from layercake.kraken.errors import InputError

OLD = "buildah version 1.28.2 (image-spec 1.1.0-rc2, runtime-spec 1.0.2-dev)"
NEW = "buildah version 1.33.7 (image-spec 1.1.0-rc.5, runtime-spec 1.1.0)"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("FROM a\nRUN <<EOF\napt-get update\nEOF\n", 2),
        ("FROM a\n# RUN <<EOF\nRUN cat <<-'END' > /x\nEND\n", 3),
        ('FROM a\n\nCOPY <<"index.html" /srv/\nindex.html\n', 3),
        ("FROM a\nadd <<A <<B /d/\nA\nB\n", 2),
        ("FROM a\nRUN x && \\\n  # why\n  python3 <<PY\nPY\n", 4),
        ("FROM a\nRUN 3<<EOF cat\nEOF\n", 2),
        ("FROM a\nRUN echo $((1<<3)) <<< word\n", 0),
        ("FROM a\nRUN echo '<<EOF'\n", 0),
        ("FROM a\nENV X=<<EOF\nLABEL y <<EOF\n", 0),
        ("", 0),
    ],
)
def test_where_a_here_document_begins(tmp_path: Path, text: str, line: int) -> None:
    assert here_document(text)[0] == line
    path = tmp_path / "Dockerfile"
    path.write_text(text)
    check(path, NEW)
    check(path, "something else")
    if line:
        with pytest.raises(InputError, match=rf"line {line} begins a here-document.*1\.28"):
            check(path, OLD)
    else:
        check(path, OLD)


@pytest.mark.parametrize(
    ("said", "version"), [(OLD, (1, 28)), (NEW, (1, 33)), ("", None), ("podman 4", None)]
)
def test_versions(said: str, version: tuple[int, int] | None) -> None:
    assert version_of(said) == version
