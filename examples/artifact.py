"""Ahead of time: write an artifact that a machine without TExpr's compiler can launch, and read its manifest."""

import tempfile
from pathlib import Path

import texpr
from texpr.runtime.load import read_artifact


def main() -> None:
    kernel = texpr.load(Path(__file__).with_name("matmul.tex")).only
    compiled = kernel.compile("cuda:sm_90a", N=4096, K=4096)  # M stays dynamic
    with tempfile.TemporaryDirectory() as folder:
        compiled.save(Path(folder) / "matmul", source_only=True)  # with nvcc, leave this out: a cubin is added
        manifest, files = read_artifact(Path(folder) / "matmul")
        print(manifest.name, "for", manifest.target, "with sizes", dict(manifest.sizes))
        for parameter in manifest.parameters:
            print(" ", parameter.mode, parameter.name, parameter.dtype, list(parameter.shape))
        print("files:", ", ".join(files))


if __name__ == "__main__":
    main()
