"""What a node's image set, and each container of it, can be. These words stand on the wire."""

from __future__ import annotations

import enum


class ImageState(enum.StrEnum):
    """The values of the state variable `image`."""

    UNKNOWN = "UNKNOWN"
    IDLE = "IDLE"
    ACTIVE = "ACTIVE"
    UPDATE = "UPDATE"
    ERROR = "ERROR"
    FATAL = "FATAL"


class LastError(enum.Enum):
    """What a container's last attempt failed at. Its name stands on the wire."""

    NOERROR = "nothing failed"
    SERVER_FAIL = "its content could not be fetched"
    ATTACH = "it could not be attached"
    MOUNT = "a mount of it failed"
    OVERLAY = "its root could not be made"
    INIT_FAIL = "its container could not be made or started"
    DIED = "its init ended"
    UNHEALTHY = "its health check failed"
    MAX_ATTEMPTS = "it could not be started, and is given up"
    MAX_DEATHS = "it did not go on running, or not well, and is given up"

    @property
    def given_up(self) -> bool:
        """Whether it is not tried again before the set is changed or a person clears it."""
        return self in (LastError.MAX_ATTEMPTS, LastError.MAX_DEATHS)

    @property
    def when_given_up(self) -> LastError:
        """What stands here once the attempts are used up."""
        return (
            LastError.MAX_DEATHS
            if self in (LastError.DIED, LastError.UNHEALTHY)
            else LastError.MAX_ATTEMPTS
        )


def given_up(name: str) -> bool:
    """Whether a container is given up, by its last error's name. One that is not known here says
    nothing."""
    return name in LastError.__members__ and LastError[name].given_up
