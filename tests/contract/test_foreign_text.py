"""What programs print and what is below /proc is somebody else's words: bytes that are no UTF-8
stop nobody, and only a line feed ends a line of the kernel's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.contract.test_bounded import calls, in_product

READER = "layercake/base/text.py"
OWN_WORDS = ("/proc/cmdline", "/proc/sys/")
"""What the head has written, or the kernel alone."""


def faults(path: str, tree: ast.AST) -> Iterator[str]:
    for name, call in calls(tree):
        given = {word.arg for word in call.keywords}
        if name in ("run", "Popen", "check_output") and "text" in given and "errors" not in given:
            yield f"{path}:{call.lineno}: text=True without errors="
        if name != "read_text" or given or path == READER:
            continue
        what = ast.unparse(call.func)
        if "/proc/" in what and not any(word in what for word in OWN_WORDS):
            yield f"{path}:{call.lineno}: read a file of proc(5) by of_proc or lines_of_proc"


def test_foreign_text_is_read_whatever_its_bytes_are() -> None:
    found = in_product(faults)
    assert not found, "\n".join(found)


def test_the_check_sees_what_it_should() -> None:
    text = (
        'Path(f"/proc/{pid}/stat").read_text()\nsubprocess.run(["ip"], text=True)\n'
        'Path("/proc/cmdline").read_text()\nsubprocess.run(["ip"], text=True, errors="replace")\n'
    )
    assert [line.split(":")[1] for line in faults("x.py", ast.parse(text))] == ["1", "2"]
