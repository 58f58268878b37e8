"""The powerman service process; started by the head's service manager."""

from layercake.moduleapi import client
from powerman.service import PowerService

if __name__ == "__main__":
    client.main(PowerService)
