"""The image module's table. Its mutations are the nodes' own; its process serves the image files."""

from __future__ import annotations

import dataclasses

from imageapi.events import EVENTS
from imageapi.mutations import MUTATIONS, VARIABLES
from imageapi.settings import ImageSettings, check
from layercake.kraken.mutation import Mutation
from layercake.moduleapi.module import Goals, Module


def tune(mutation: Mutation, part: object, settings: ImageSettings | None) -> Mutation:
    """How long a node may take for its images is a setting."""
    site = settings or ImageSettings()
    limit = {"image-start": site.start_s, "image-update": site.start_s, "image-retry": site.start_s,
             "image-stop": site.stop_s, "image-drop": site.stop_s, "image-clear": site.stop_s}.get(mutation.name)
    return mutation if limit is None else dataclasses.replace(mutation, timeout=limit)


MODULE = Module(
    name="imageapi", doc="System images: the store's files for the nodes, and what nodes do with their image sets.",
    section="images", settings=ImageSettings, check=check, variables=VARIABLES, mutations=MUTATIONS,
    goals=Goals(up={"image": "ACTIVE"}, empty={"image": "IDLE"}), tune=tune, events=EVENTS,
    service="imageapi.service:ImageService",
)
