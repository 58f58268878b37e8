"""The image module's table. Its mutations are the nodes' own; its process serves the image
files."""

from __future__ import annotations

import dataclasses

from imageapi.events import EVENTS
from imageapi.mutations import MUTATIONS, VARIABLES
from imageapi.settings import ImageSettings, check
from layercake.kraken.mutation import Mutation
from layercake.moduleapi.module import Goals, Module

_USUAL = ImageSettings()
_STARTS = ("image-start", "image-update", "image-retry")
_STOPS = ("image-stop", "image-drop", "image-clear")


def tune(mutation: Mutation, part: object, settings: ImageSettings | None) -> Mutation:
    """How long a node may take for its images is a setting."""
    site = settings or _USUAL
    limit = (
        site.start_s
        if mutation.name in _STARTS
        else site.stop_s
        if mutation.name in _STOPS
        else None
    )
    return (
        mutation
        if limit in (None, mutation.timeout)
        else dataclasses.replace(mutation, timeout=limit)
    )


MODULE = Module(
    name="imageapi",
    doc="System images: the store's files for the nodes, and what nodes do with their image sets.",
    section="images",
    settings=ImageSettings,
    check=check,
    variables=VARIABLES,
    mutations=MUTATIONS,
    goals=Goals(up={"image": "ACTIVE"}, empty={"image": "IDLE"}),
    tune=tune,
    events=EVENTS,
    service="imageapi.service:ImageService",
)
