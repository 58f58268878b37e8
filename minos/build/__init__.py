"""Builds minOS from the distribution's packages. Runs on the head, never on a node."""

from minos.build.builder import BuildOptions, BuildResult, append_files, build, table

__all__ = ["BuildOptions", "BuildResult", "append_files", "build", "table"]
