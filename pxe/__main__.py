"""Runs the boot service as a process of the head's service manager: python -m pxe."""

from layercake.moduleapi import client
from pxe.service import PxeService

client.main(PxeService)
