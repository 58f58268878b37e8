"""What both sides know of images as types: events, states, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from imageapi import events
from imageapi.events import EVENTS
from imageapi.module import tune
from imageapi.mutations import MUTATIONS, VARIABLES
from imageapi.node.imageset.plan import ATTEMPTS, NO_FAILURE, Failure
from imageapi.settings import ImageSettings, check
from imageapi.spec.health import CHECKS, parse_health
from imageapi.spec.state import ImageState, LastError, given_up
from imageapi.store.open import open_store
from layercake.kraken.events import Bearing, EventKind
from layercake.moduleapi.fields import Mistake

RBD = {"store": "rbd", "conf": "/etc/ceph/ceph.conf", "keyring": "/etc/ceph/k", "pool": "images"}


def test_every_event_kind_is_in_the_list_once() -> None:
    declared = [value for value in vars(events).values() if isinstance(value, EventKind)]
    assert sorted(declared, key=lambda k: k.name) == sorted(EVENTS, key=lambda k: k.name)
    assert len({kind.name for kind in EVENTS}) == len(EVENTS)
    urgent = {kind.name for kind in EVENTS if kind.urgent}
    assert urgent == {
        "image.staged",
        "image.stage-failed",
        "image.unhealthy",
        "image.healthy",
        "image.degraded",
    }
    assert [kind.name for kind in EVENTS if kind.bearing is Bearing.STANDING] == [
        "image.containers"
    ]


def test_the_variable_has_the_states_and_each_cause_a_word_for_being_given_up() -> None:
    assert VARIABLES[0].values == tuple(ImageState)
    assert [e.name for e in LastError if e.given_up] == ["MAX_ATTEMPTS", "MAX_DEATHS"]
    assert given_up("MAX_DEATHS") and not given_up("DIED") and not given_up("MAX_OF_A_NEWER_NODE")
    assert NO_FAILURE.error is LastError.NOERROR
    for cause in (LastError.ATTACH, LastError.DIED):
        assert Failure(1, "", 1.0, cause).error is cause
        assert Failure(ATTEMPTS, "", 1.0, cause).error.given_up


@pytest.mark.parametrize("kind", CHECKS)
def test_every_kind_of_health_check_goes_there_and_back(kind: str) -> None:
    given: dict[str, dict[str, Any]] = {
        "exec": {"command": ["true"]},
        "tcp": {"port": 1},
        "http": {"port": 1},
        "systemd": {"unit": "a"},
        "none": {},
    }
    found = parse_health({"kind": kind, **given[kind]})
    assert parse_health(found.to_wire()) == found


def test_a_store_is_opened_as_the_settings_ask(tmp_path: Path) -> None:
    assert open_store(tmp_path, ImageSettings()).check() == f"files in {tmp_path}"
    settings = msgspec.convert(RBD, ImageSettings)
    check(settings)
    assert open_store(tmp_path, settings).list() == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"pool": ""}, "images.pool is not given"),
        ({"conf": "", "keyring": ""}, "images.conf, images.keyring is not given"),
        ({"pool": "a b"}, "images.pool 'a b' is not letters"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change: dict[str, str], text: str) -> None:
    with pytest.raises(Mistake, match=text):
        check(msgspec.convert({**RBD, **change}, ImageSettings))


def test_how_long_images_may_take_is_a_setting() -> None:
    settings = ImageSettings(start_s=900.0, stop_s=120.0)
    tuned = {m.name: tune(m, None, settings).timeout for m in MUTATIONS}
    assert (tuned["image-start"], tuned["image-update"], tuned["image-retry"]) == (900.0,) * 3
    assert (tuned["image-stop"], tuned["image-drop"], tuned["image-clear"]) == (120.0,) * 3
    assert [tune(m, None, None) for m in MUTATIONS] == list(MUTATIONS)
