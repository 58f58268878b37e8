"""The image service as a process of its own, started by the head's service manager."""

from imageapi.service import ImageService
from layercake.moduleapi import client

if __name__ == "__main__":
    client.main(ImageService)
