"""Builds minOS from the distribution's packages. Runs on the head, never on a node."""

from minos.build.builder import BuildOptions, append_files, build
from minos.build.result import BuildResult, table

__all__ = ["BuildOptions", "BuildResult", "append_files", "build", "table"]
