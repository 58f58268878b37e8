"""The image module's table. Its mutations are the nodes' own; its process serves the image files."""

from __future__ import annotations

from imageapi.events import EVENTS
from imageapi.mutations import MUTATIONS, VARIABLES
from imageapi.settings import ImageSettings, check
from layercake.moduleapi.module import Goals, Module

MODULE = Module(
    name="imageapi", doc="System images: the store's files for the nodes, and what nodes do with their image sets.",
    section="images", settings=ImageSettings, check=check, variables=VARIABLES, mutations=MUTATIONS,
    goals=Goals(up={"image": "ACTIVE"}, empty={"image": "IDLE"}), events=EVENTS,
    service="imageapi.service:ImageService",
)
