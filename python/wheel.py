#!/usr/bin/env python3
"""Packs a wheel: python3 python/wheel.py NATIVE OUT [LOCAL]. NATIVE holds the library and the programs as `make wheel`
links them, LOCAL is what the version says of the build (cu130). Also the build backend of pyproject.toml.

What clang's code needs beside the C library and zlib is packed, too (OpenMP's runtime). The platform tag names the
oldest glibc that has all symbol versions that any of the files asks for."""
import base64
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "maskrcnn"
SYSTEM = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|z))\.so(\.\d+)?")  # what manylinux takes for granted
METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: Mask R-CNN in C and CUDA: inference from Python, and the programs to train and evaluate
License: MIT
Requires-Python: >=3.9
Requires-Dist: numpy>=1.20
Description-Content-Type: text/markdown

{readme}"""


def version():
    header = (ROOT / "include/maskrcnn.h").read_text()
    return ".".join(re.search(rf"define MASKRCNN_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR"))


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def packed_libraries(files):
    """{name: path} of those that the files need and a system may not have."""
    found = {}
    for f in files:
        for name, path in re.findall(r"^\s*(\S+)(?: => (\S+))?", output("ldd", str(f)), re.M):
            base = os.path.basename(name)
            if not SYSTEM.fullmatch(base):
                found[base] = path
    wrong = [name for name in found if not re.match(r"lib(gomp|omp)\.so", name)]
    if wrong:
        sys.exit(f"wheel.py: the wheel would need {', '.join(wrong)} on every machine; link it statically")
    return found


def platform_tag(files):
    least = max(tuple(map(int, v)) for f in files
                for v in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", output("readelf", "-VW", str(f))))
    return "manylinux_%d_%d_%s" % (*least, platform.machine())


def pack(native, out, local=""):
    """Returns the wheel's name."""
    programs = sorted(p for p in pathlib.Path(native).iterdir() if p.is_file() and not p.is_symlink())
    libraries = packed_libraries(programs)
    tag = "py3-none-" + platform_tag([*programs, *libraries.values()])
    full = version() + (f"+{local}" if local else "")
    info = f"{NAME}-{full}.dist-info"
    contents = {f"{NAME}/{p.name}": (p.read_bytes(), 0o644) for p in sorted((ROOT / "python" / NAME).glob("*.py*"))
                if p.is_file()}
    for p in programs:
        is_library = p.name == "libmaskrcnn.so"
        name = f"{p.name}.{version().split('.')[0]}" if is_library else p.name
        contents[f"{NAME}/native/{name}"] = (p.read_bytes(), 0o644 if is_library else 0o755)
    for name, path in libraries.items():
        contents[f"{NAME}/native/{name}"] = (pathlib.Path(path).read_bytes(), 0o644)
    readme = (ROOT / "docs/python.md").read_text()
    texts = {"METADATA": METADATA.format(name=NAME, version=full, readme=readme),
             "WHEEL": f"Wheel-Version: 1.0\nGenerator: maskrcnn.c\nRoot-Is-Purelib: false\nTag: {tag}\n",
             "entry_points.txt": "[console_scripts]\nmaskrcnn = maskrcnn.__main__:main\n"}
    texts.update({f"licenses/{f}": (ROOT / f).read_text() for f in ("LICENSE", "NOTICE")})
    contents.update({f"{info}/{name}": (text.encode(), 0o644) for name, text in texts.items()})
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, (data, _) in contents.items())
    contents[f"{info}/RECORD"] = (f"{record}{info}/RECORD,,\n".encode(), 0o644)
    wheel = f"{NAME}-{full}-{tag}.whl"
    pathlib.Path(out).mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(pathlib.Path(out) / wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for name, (data, mode) in contents.items():
            member = zipfile.ZipInfo(name)  # of 1980, so that equal files are an equal wheel
            member.external_attr, member.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
            z.writestr(member, data)
    return wheel


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


# ---- the build backend: https://peps.python.org/pep-0517 ------------------------------------------------------------


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    before = set(os.listdir(wheel_directory))
    make = ["make", "-C", str(ROOT), "wheel-here", f"WHEELS={wheel_directory}", f"PYTHON={sys.executable}"]
    if subprocess.run(make).returncode:
        sys.exit("make failed; the lines above say why")
    return (set(os.listdir(wheel_directory)) - before).pop()


def build_sdist(sdist_directory, config_settings=None):
    name = f"{NAME}-{version()}"
    files = output("git", "-C", str(ROOT), "ls-files", "-z").split("\0")
    with tarfile.open(pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as t:
        for f in filter(None, files):
            t.add(ROOT / f, f"{name}/{f}", recursive=False)
    return f"{name}.tar.gz"


if __name__ == "__main__":
    print(pathlib.Path(sys.argv[2]) / pack(*sys.argv[1:]))
