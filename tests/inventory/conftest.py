"""Shared: reading an inventory from a text and getting its mistakes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from layercake.inventory.problems import InventoryErrors, Problem
from tests.support.inventory import load


@pytest.fixture
def mistakes() -> Callable[..., list[Problem]]:
    """The problems of an inventory text; the test fails if there are none."""

    def read(text: str, known_images: set[str] | None = None) -> list[Problem]:
        with pytest.raises(InventoryErrors) as caught:
            load(textwrap.dedent(text), "rack.yaml", known_images)
        return list(caught.value.problems)

    return read
