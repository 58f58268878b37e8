"""Run by the shipped interpreter itself (`python -sSB closure.py list|compile ...`): what a node
imports, compiled.

Nothing is listed by hand, so nothing is forgotten: `list` imports the entry points, and what is in
sys.modules then is what ships; minos/lean stands in for modules of the standard library. `compile`
runs in a fresh process, because what the first one has imported would show in its output.

Compiled code is -OO (no docstrings, no asserts) with an unchecked hash, so that no source and no
timestamp is looked for. The parent sets PYTHONHASHSEED: the order inside a frozenset constant
depends on it.
"""

from __future__ import annotations

import sys


def imported(root: str, entries: list[str]) -> list[tuple[str, str, bool]]:
    """(module, file, whether it is a package) of all that the entry points import, except what is
    inside the interpreter."""
    import importlib

    sys.path[:0] = [f"{root}/minos/lean", root]
    for entry in entries:
        importlib.import_module(entry)
    modules = []
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        file = getattr(module, "__file__", None)
        if spec and file and spec.origin != "frozen":
            modules.append((spec.name, file, hasattr(module, "__path__")))
    return sorted(set(modules))


def add(archive: object, name: str, file: str, package: bool) -> None:
    """Compiles one module into a zip archive, stored: the initramfs is compressed as a whole."""
    import importlib._bootstrap_external as external
    import zipfile
    from pathlib import Path

    if not isinstance(archive, zipfile.ZipFile):
        raise TypeError("archive must be a ZipFile")
    path = name.replace(".", "/") + ("/__init__.py" if package else ".py")
    code = compile(Path(file).read_bytes(), path, "exec", dont_inherit=True, optimize=2)
    # Private, and the one writer of this format.
    data = external._code_to_hash_pyc(code, b"\0" * 8, False)  # type: ignore[attr-defined]
    archive.writestr(zipfile.ZipInfo(path + "c", (1980, 1, 1, 0, 0, 0)), bytes(data))


def main(command: str, *arguments: str) -> None:
    """`list ROOT MODULE...` prints JSON; `compile ZIP` takes such JSON on stdin and writes the
    archive."""
    if command == "list":
        modules = imported(arguments[0], list(arguments[1:]))
        import json

        sys.stdout.write(json.dumps(modules))
    else:
        import json
        import zipfile

        with zipfile.ZipFile(arguments[0], "w") as archive:
            for name, file, package in json.loads(sys.stdin.read()):
                add(archive, name, file, package)


if __name__ == "__main__":
    main(*sys.argv[1:])
