"""`python -m minos.build --out DIR`: builds vmlinuz, minos.img and minos.json, and prints what
takes the space."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from layercake.kraken.errors import LayercakeError
from minos.build import profiles, python
from minos.build.archives.packing import COMPRESSORS
from minos.build.builder import BuildOptions, build
from minos.build.debian import debs
from minos.build.result import table


def comma_separated(text: str) -> tuple[str, ...]:
    """Words with commas between them."""
    return tuple(item for item in text.split(",") if item)


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m minos.build", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/layercake")
    parser.add_argument("--ca", type=Path, help="the head's certificate authority, PEM")
    parser.add_argument(
        "--profile", default=profiles.GENERAL, help="the recipe to begin with: server, virtual"
    )
    parser.add_argument(
        "--arch",
        choices=sorted(debs.NAMES),
        help="the architecture of the nodes; this machine's, if not given",
    )
    parser.add_argument("--kernel", help="a Debian package, or the path of a kernel")
    parser.add_argument(
        "--kernel-modules", help="the directory of its modules, if the kernel is a path"
    )
    parser.add_argument(
        "--modules",
        type=comma_separated,
        help=f"module sets ({', '.join(profiles.SETS)}) and names, comma separated",
    )
    parser.add_argument(
        "--firmware", type=comma_separated, help="Debian packages and directories, comma separated"
    )
    parser.add_argument("--compression", choices=sorted(COMPRESSORS), default="zstd")
    parser.add_argument("--python", type=Path, default=python.own())
    parsed = parser.parse_args(arguments)
    try:
        profile = profiles.of(
            parsed.profile,
            None,
            architecture=parsed.arch,
            kernel=parsed.kernel,
            kernel_modules=parsed.kernel_modules,
            modules=parsed.modules,
            firmware=parsed.firmware,
        )
        options = BuildOptions(
            parsed.out, parsed.cache, parsed.ca, profile, parsed.compression, parsed.python
        )
        # This is a command.
        result = build(options, say=lambda text: print(text, file=sys.stderr))  # noqa: T201
    except LayercakeError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 (this is a command)
        return 1
    print(table(result))  # noqa: T201 (this is a command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
