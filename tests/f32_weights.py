"""The test model's weights in full precision, where engines agree to the token: Q4_1 made float32 again. Needs gguf and
numpy; writes half a gigabyte.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO, Any

import engine_process
from tokenizer_files import _value

_STRING = 8
_ALIGN = 32


def write_f32(path: Path) -> Path:
    """A GGUF file with the same metadata, in which every tensor is float32."""
    import numpy
    from gguf import GGMLQuantizationType, quants
    from gguf.constants import GGML_QUANT_SIZES

    source = engine_process.model_path()
    data = numpy.memmap(source, dtype=numpy.uint8, mode="r")
    with source.open("rb") as file:
        magic, version, tensors, count = struct.unpack("<4sIQQ", file.read(24))
        for _ in range(count):
            _value(file, _STRING)
            _value(file, struct.unpack("<I", file.read(4))[0])
        metadata = bytes(data[24 : file.tell()])
        infos = [_tensor(file) for _ in range(tensors)]
        begin = _aligned(file.tell())
    with path.open("wb") as out:
        out.write(struct.pack("<4sIQQ", magic, version, tensors, count) + metadata)
        offset = 0
        for name, shape, _, _ in infos:
            out.write(struct.pack("<Q", len(name)) + name + struct.pack("<I", len(shape)))
            out.write(struct.pack(f"<{len(shape)}QIQ", *shape, GGMLQuantizationType.F32, offset))
            offset = _aligned(offset + 4 * _product(shape))
        out.write(b"\0" * (_aligned(out.tell()) - out.tell()))
        for _, shape, kind, at in infos:
            block, size = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
            raw = numpy.array(data[begin + at : begin + at + _product(shape) // block * size])
            rows = raw.reshape(-1, shape[0] // block * size)
            values = quants.dequantize(rows, GGMLQuantizationType(kind)).astype(numpy.float32).tobytes()
            out.write(values + b"\0" * (_aligned(len(values)) - len(values)))
    return path


def _tensor(file: IO[bytes]) -> tuple[bytes, tuple[int, ...], int, int]:
    """Name, shape, type, offset."""
    name = file.read(struct.unpack("<Q", file.read(8))[0])
    dimensions = struct.unpack("<I", file.read(4))[0]
    shape: Any = struct.unpack(f"<{dimensions}Q", file.read(8 * dimensions))
    return (name, shape, *struct.unpack("<IQ", file.read(12)))


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGN) * _ALIGN


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for one in shape:
        product *= one
    return product
