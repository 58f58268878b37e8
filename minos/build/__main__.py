"""`python -m minos.build --out DIR`: builds vmlinuz, minos.img and minos.json, and prints what takes the space."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from layercake.kraken.errors import LayercakeError
from minos.build import python
from minos.build.builder import COMPRESSORS, BuildOptions, build, table
from minos.build.kernel import module_names


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m minos.build", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/layercake")
    parser.add_argument("--ca", type=Path, help="the head's certificate authority, PEM")
    parser.add_argument("--kernel-package", default="linux-image-cloud-amd64")
    parser.add_argument("--modules", default="", help="more kernel modules, comma separated; 'server' means common network cards")
    parser.add_argument("--compression", choices=sorted(COMPRESSORS), default="zstd")
    parser.add_argument("--python", type=Path, default=python.own())
    given = parser.parse_args(arguments)
    modules = module_names(given.modules)
    options = BuildOptions(given.out, given.cache, given.ca, given.kernel_package, modules, given.compression, given.python)
    try:
        result = build(options, say=lambda text: print(text, file=sys.stderr))  # noqa: T201 (this is a command)
    except LayercakeError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 (this is a command)
        return 1
    print(table(result))  # noqa: T201 (this is a command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
