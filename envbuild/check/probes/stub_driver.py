"""Write a driver that shows one GPU and can do nothing more; for machines without one.

With it a framework goes on until it has looked for its libraries, and says which it cannot open.
Its two files are ELF shared objects of a few functions in machine code (x86-64), because neither
the image nor this machine need have a compiler.  Functions and constants: CUDA driver API and NVML,
NVIDIA's documentation; layout: System V ABI, AMD64 supplement.
"""

import ctypes
import platform
import shutil
import struct
import tempfile

PAGE = 4096
DONE = b"\x31\xc0\xc3"  # xor eax, eax; ret
CAPABILITY = (8, 0)
MEMORY = 40 << 30
ERROR_TEXT = b"this is no driver\0"


def store_int(value):
    """Code of a function that writes 32 bits through its first argument."""
    return b"\xc7\x07" + struct.pack("<i", value) + DONE  # mov dword [rdi], value


def store_long(value, *, twice=False):
    """Code of a function that writes 64 bits through its first argument, or its first two."""
    second = b"\x48\x89\x06" if twice else b""  # mov [rsi], rax
    return b"\x48\xb8" + struct.pack("<Q", value) + b"\x48\x89\x07" + second + DONE


def store_bytes(data):
    """Code of a function that writes at most 128 bytes to where its first argument points."""
    code = b""
    data += b"\0" * (-len(data) % 8)
    for at in range(0, len(data), 8):
        # mov rax, eight bytes; mov [rdi+at], rax
        code += b"\x48\xb8" + data[at : at + 8] + b"\x48\x89\x47" + struct.pack("b", at)
    return code + DONE


def store_text(text):
    """Code of a function that writes a text's address through its second argument."""
    return (
        b"\x48\x8d\x05" + struct.pack("<i", 6) + b"\x48\x89\x06" + DONE + text
    )  # lea rax, [rip+6]


def store_attribute():
    """Code of cuDeviceGetAttribute: the compute capability (75 and 76), and 1 for all else."""
    code = b"\xb8\x01\x00\x00\x00"  # mov eax, 1
    for attribute, value in zip((75, 76), CAPABILITY):
        # cmp esi, attribute; jne over the next; mov eax, value
        code += (
            b"\x83\xfe" + struct.pack("b", attribute) + b"\x75\x05\xb8" + struct.pack("<i", value)
        )
    return code + b"\x89\x07" + DONE


CUDA = {
    "cuInit": DONE,
    "cuDevicePrimaryCtxSetFlags": DONE,
    "cuDevicePrimaryCtxSetFlags_v2": DONE,
    "cuCtxSetCurrent": DONE,
    "cuDriverGetVersion": store_int(12030),
    "cuDeviceGetCount": store_int(1),
    "cuDeviceGet": b"\x89\x37" + DONE,  # mov [rdi], esi
    "cuCtxGetDevice": store_int(0),
    "cuDeviceCanAccessPeer": store_int(0),
    "cuCtxGetCurrent": store_long(8),
    "cuDevicePrimaryCtxRetain": store_long(8),
    "cuDevicePrimaryCtxGetState": b"\xc7\x06" + bytes(4) + b"\xc7\x02" + bytes(4) + DONE,
    "cuDeviceTotalMem_v2": store_long(MEMORY),
    "cuMemGetInfo_v2": store_long(MEMORY, twice=True),
    "cuDeviceGetName": store_bytes(b"A100 that is none\0"),
    "cuDeviceGetUuid": store_bytes(b"\7" * 16),
    "cuDeviceGetUuid_v2": store_bytes(b"\7" * 16),
    "cuDeviceGetPCIBusId": store_bytes(b"0000:07:00.0\0"),
    "cuDeviceGetAttribute": store_attribute(),
    "cuGetErrorName": store_text(b"CUDA_ERROR_OF_NO_DRIVER\0"),
    "cuGetErrorString": store_text(ERROR_TEXT),
}
NVML = {
    "nvmlInit_v2": DONE,
    "nvmlShutdown": DONE,
    "nvmlDeviceGetCount_v2": store_int(1),
    "nvmlSystemGetDriverVersion": store_bytes(b"550.54.15\0"),
}
LIBRARIES = {"libcuda.so.1": CUDA, "libnvidia-ml.so.1": NVML}


def shared_object(soname: str, functions: "dict[str, bytes]") -> bytes:
    """The bytes of a shared object with some functions (name -> machine code)."""
    strings, symbols, code = b"\0" + soname.encode() + b"\0", bytes(24), b""
    start = 64 + 4 * 56
    for name, text in functions.items():
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 1, start + len(code), len(text))
        strings += name.encode() + b"\0"
        code += text
    count = len(functions) + 1
    # one bucket: every name is looked for along one chain
    chain = [*range(2, count), 0]
    hashes = struct.pack("<%dI" % (count + 3), 1, count, 1, 0, *chain)
    at = -(-(start + len(code)) // PAGE) * PAGE
    entries = 7
    places, end = [], at + 16 * entries
    for part in (hashes, symbols, strings):
        end += -end % 8
        places.append(end)
        end += len(part)
    tags = (
        (14, 1),
        (4, places[0]),
        (6, places[1]),
        (5, places[2]),
        (10, len(strings)),
        (11, 24),
        (0, 0),
    )
    data = b"".join(struct.pack("<QQ", *tag) for tag in tags)
    for place, part in zip(places, (hashes, symbols, strings)):
        data += bytes(place - at - len(data)) + part
    segments = (
        (1, 5, 0, start + len(code), PAGE),  # LOAD, readable and executable
        (1, 6, at, len(data), PAGE),  # LOAD, writable: the loader writes into the dynamic section
        (2, 6, at, 16 * entries, 8),  # DYNAMIC
        (0x6474E551, 6, 0, 0, 16),  # GNU_STACK: no executable stack is asked for
    )
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0)
    for kind, flags, place, size, align in segments:
        head += struct.pack("<IIQQQQQQ", kind, flags, place, place, place, size, size, align)
    return (head + code).ljust(at, b"\0") + data


def load_stub_driver():
    """Load the driver into this process: whoever opens its libraries gets them, by their SONAMEs.

    Returns whether it is there now; never on another machine than x86-64.
    """
    if platform.machine() != "x86_64":
        return False
    folder = tempfile.mkdtemp(prefix="envbuild-driver-")
    try:
        for soname, functions in LIBRARIES.items():
            path = os.path.join(folder, soname)
            with open(path, "wb") as file:
                file.write(shared_object(soname, functions))
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False  # a folder from which nothing may be executed
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return True
