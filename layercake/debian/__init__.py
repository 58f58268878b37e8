"""The Debian package of Layercake: `python -m layercake.debian.build`, or `make deb`. It is not
part of what the package holds."""
