"""Builds the native kernels: the same sources once per instruction set, as libraries loaded at run time.

Every library is optional. Without a compiler, or without the headers that jaxlib ships, the package installs
all the same and computes with XLA; with `LONGSPAN_KERNELS=native` in the environment the installation fails instead.
"""

import copy
import os
import platform
from importlib.util import find_spec
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

NATIVE = Path("src/longspan/ops/native")
REQUIRED = os.environ.get("LONGSPAN_KERNELS") == "native"
FLAGS = ["-std=c++17", "-O3", "-g0", "-Wall", "-Wextra", "-fno-math-errno", "-fno-trapping-math", "-fvisibility=hidden"]
INSTRUCTION_SETS = {"portable": []}
if platform.machine().lower() in {"x86_64", "amd64"}:
    avx2 = ["-mavx2", "-mfma"]
    avx512 = ["-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mprefer-vector-width=512"]
    INSTRUCTION_SETS |= {"avx2": avx2, "avx512": avx2 + avx512}


class BuildNative(build_ext):
    """Builds the libraries side by side; each keeps its objects apart, since all have the same sources."""

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or True

    def build_extension(self, ext):
        alone = copy.copy(self)
        alone.build_temp = str(Path(self.build_temp) / ext.name.rpartition(".")[2])
        build_ext.build_extension(alone, ext)


def native_libraries() -> list[Extension]:
    """One extension per instruction set, or none where jaxlib's headers are missing."""
    jaxlib = find_spec("jaxlib")
    headers = Path(jaxlib.origin).parent / "include" if jaxlib and jaxlib.origin else None
    if headers is None or not (headers / "xla/ffi/api/ffi.h").exists():
        if REQUIRED:
            raise FileNotFoundError("LONGSPAN_KERNELS=native, but jaxlib's headers (xla/ffi/api/ffi.h) were not found")
        return []
    return [
        Extension(
            f"longspan.ops._native_{name}",
            sources=sorted(str(source) for source in NATIVE.glob("*.cc")),
            depends=sorted(str(header) for header in NATIVE.glob("*.h")),
            language="c++",
            extra_compile_args=[*FLAGS, "-isystem", str(headers), *flags],  # warnings are ours alone
            py_limited_api=True,
            optional=not REQUIRED,
        )
        for name, flags in INSTRUCTION_SETS.items()
    ]


setup(
    ext_modules=native_libraries(),
    cmdclass={"build_ext": BuildNative},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
