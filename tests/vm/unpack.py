#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""unpack.py BZIMAGE VMLINUX - the ELF file inside a bootable kernel (Linux's Documentation/x86/boot.rst: the header)."""
import lzma
import struct
import sys

image = open(sys.argv[1], "rb").read()
sectors = image[0x1F1] or 4  # of the real-mode part, without its first one
offset, length = struct.unpack_from("<II", image, 0x248)
start = (sectors + 1) * 512 + offset
packed = image[start : start + length]
if packed[:6] != b"\xfd7zXZ\0":
    sys.exit(f"unpack.py: {sys.argv[1]} is not packed with xz")
# A decompressor, since 4 bytes follow the stream: its unpacked size.
open(sys.argv[2], "wb").write(lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed))
