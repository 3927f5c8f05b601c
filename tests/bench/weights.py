"""The weights of the tests' model in float32, as a GGUF file: every tensor of the quantised file, its numbers as they
are.

So two engines run on equal numbers, one of which computes with the quantised form of them. The file (540 MB) is made
once and kept in ``build/``, which is not under version control.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def float32(quantised: Path, folder: Path | None = None) -> Path:
    """The path of the file. Needs the package gguf."""
    import gguf

    folder = folder or Path(os.environ.get("OUTGUARD_BUILD", ROOT / "build"))
    made = folder / quantised.name.replace("Q4_1", "F32")
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    reader = gguf.GGUFReader(quantised)
    unfinished = made.with_suffix(f".{os.getpid()}")
    writer = gguf.GGUFWriter(unfinished, str(reader.fields["general.architecture"].contents()))
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        inside = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, inside)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        numbers: Any = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, numbers.reshape(tensor.shape[::-1]), raw_dtype=gguf.GGMLQuantizationType.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    unfinished.rename(made)
    return made
