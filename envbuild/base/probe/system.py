"""Part of the probe: Debian packages, the C library, CUDA's libraries, variables, pip's files."""

import configparser
import glob
import os
import re

ENVIRONMENT = (
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "PYTHONPATH",
    "CUDA_VERSION",
    "CUDNN_VERSION",
    "NV_CUDNN_VERSION",
    "NCCL_VERSION",
    "NVIDIA_REQUIRE_CUDA",
    "NVIDIA_PYTORCH_VERSION",
    "PYTORCH_VERSION",
    "TORCH_CUDA_ARCH_LIST",
)
LIBRARY = re.compile(r"^lib(cudart|cudnn|nccl|cuda)\.so(\.[0-9.]+)?$")


def read_release(files):
    text = read_text(files, "/etc/os-release") or read_text(files, "/usr/lib/os-release") or ""
    return dict(re.findall(r"""^([A-Z_]+)=["']?(.*?)["']?$""", text, re.M))


def read_apt(files):
    found = []
    for stanza in (
        (files.read("/var/lib/dpkg/status") or b"").decode("utf-8", "replace").split("\n\n")
    ):
        fields = dict(re.findall(r"^(Package|Status|Version|Architecture): (.*)$", stanza, re.M))
        named = "Package" in fields and "Version" in fields
        if named and fields.get("Status", "").endswith(" installed"):
            found.append([fields["Package"], fields["Version"], fields.get("Architecture", "all")])
    return sorted(found)


def glibc_of_files(files):
    """The version of glibc by its file's name or text; None without glibc."""
    for pattern in (
        "/lib/*-linux-gnu/libc.so.6",
        "/lib64/libc.so.6",
        "/usr/lib*/libc.so.6",
        "/lib/libc.so.6",
    ):
        for path in files.glob(pattern):
            named = re.search(r"/libc-(2\.\d+)\.so$", files.real(path))
            if named:
                return named.group(1)
            told = re.search(rb"GNU C Library [^\n]*version (2\.\d+)", files.read(path) or b"")
            if told:
                return told.group(1).decode()
    return None


def read_glibc():
    try:
        name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
        return version if name == "glibc" else None
    except (AttributeError, OSError, TypeError, ValueError):
        return None


def find_newest_time(files, dists):
    """The newest time of what is installed (seconds since 1970): when the content was made."""
    paths = ["/var/lib/dpkg/status", "/lib/apk/db/installed", "/var/lib/rpm"]
    paths += [dist["location"] for dist in dists]
    times = [time for time in map(files.mtime, set(paths)) if time is not None]
    return max(times) if times else None


def loader_folders(files, prefix):
    """Where the dynamic loader looks: LD_LIBRARY_PATH, ld.so.conf, the usual places."""
    found = [p for p in files.environ.get("LD_LIBRARY_PATH", "").split(":") if p]
    texts = [read_text(files, "/etc/ld.so.conf") or ""]
    texts += [read_text(files, path) or "" for path in files.glob("/etc/ld.so.conf.d/*.conf")]
    for text in texts:
        found += [line.strip() for line in text.splitlines() if line.startswith("/")]
    found += [
        "/lib64",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/local/cuda/lib64",
        os.path.join(prefix, "lib"),
    ]
    found += files.glob("/usr/lib/*-linux-gnu") + files.glob("/usr/local/cuda*/targets/*/lib")
    found += files.glob("/usr/local/cuda*/lib64") + files.glob("/usr/local/cuda*/compat")
    found += [folder + "/stubs" for folder in found]
    unique = []
    for folder in found:
        if (
            folder not in unique
            and not folder.startswith("/.singularity.d")
            and files.isdir(folder)
        ):
            unique.append(folder)
    return unique


def read_libraries(files, path, prefix):
    """[soname, real path] of CUDA's runtime, cuDNN, NCCL, libcuda: loader's order, wheels last."""
    folders = loader_folders(files, prefix)
    for folder in path:
        folders += files.glob(os.path.join(glob.escape(folder), "nvidia", "*", "lib"))
    found, seen = [], set()
    for folder in folders:
        for name in files.names(folder):
            if LIBRARY.match(name):
                full = os.path.join(folder, name)
                if full not in seen:
                    seen.add(full)
                    found.append([full, files.real(full)])
    return found


def first_text(files, path, relative):
    for folder in path:
        text = read_text(files, os.path.join(folder, relative))
        if text is not None:
            return text[:65536]
    return None


def read_texts(files, path):
    """Texts that name versions; what they mean is decided outside."""
    found = {
        "cuda version.json": read_text(files, "/usr/local/cuda/version.json"),
        "cuda version.txt": read_text(files, "/usr/local/cuda/version.txt"),
        "torch": first_text(files, path, "torch/version.py"),
        "tensorflow": first_text(files, path, "tensorflow/python/platform/build_info.py")
        or first_text(files, path, "tensorflow_core/python/platform/build_info.py"),
        "cudnn header": read_text(files, "/usr/include/cudnn_version.h")
        or read_text(files, "/usr/local/cuda/include/cudnn_version.h"),
    }
    return {key: text for key, text in found.items() if text}


def read_environment(files):
    """What steers pip, the loader and the GPU; addresses and secrets stay where they are."""
    found = {}
    for key, value in files.environ.items():
        if (key.startswith("PIP_") or key in ENVIRONMENT) and "://" not in value:
            if not re.search(r"TOKEN|PASSWORD|SECRET|AUTH|CERT", key):
                # a container runtime's own folder is not the image's
                kept = [part for part in value.split(":") if not part.startswith("/.singularity.d")]
                if any(kept):
                    found[key] = ":".join(kept)
    return found


def constraint_files(files, prefix):
    paths = files.environ.get("PIP_CONSTRAINT", "").split()
    configurations = [
        files.environ.get("PIP_CONFIG_FILE", ""),
        "/etc/pip.conf",
        "/etc/xdg/pip/pip.conf",
    ]
    for path in configurations + [os.path.join(prefix, "pip.conf")]:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_text(files, path) or "" if path else "")
        except configparser.Error:
            continue
        for section in ("global", "install"):
            if parser.has_option(section, "constraint"):
                paths += parser.get(section, "constraint").split()
    return [path for path in paths if "://" not in path]


def read_constraints(files, prefix):
    found = ""
    for path in constraint_files(files, prefix):
        text = read_text(files, path)
        if text:
            found += text if text.endswith("\n") else text + "\n"
    return found or None
