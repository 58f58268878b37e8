"""Runs the boot service as a process of the head's service manager: python -m pxe."""

from layercake.moduleapi import client
from pxe.service import PxeService

if __name__ == "__main__":
    client.main(PxeService)
