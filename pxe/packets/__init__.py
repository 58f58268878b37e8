"""The codecs: bytes to packets and back, by pure functions. They import nothing else of pxe."""
