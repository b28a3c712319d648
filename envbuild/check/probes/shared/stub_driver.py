"""Write a driver that shows one GPU and can do nothing more; for machines without one.

With it a framework goes on until it has looked for its libraries, and says which it cannot open.
Its two files are ELF shared objects of a few functions in machine code (x86-64 or aarch64), because
neither the image nor this machine need have a compiler.  Functions and constants: CUDA driver API
and NVML, NVIDIA's documentation; layout: System V ABI and its supplements; code: AMD's and Arm's
manuals.
"""

import ctypes
import platform
import shutil
import struct
import tempfile

PAGE = 1 << 16  # the largest of both kinds of machine
CAPABILITY = (8, 0)
ATTRIBUTES = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
MEMORY = 40 << 30
# What each function does before it returns 0; arguments are counted from 0:
#   int V      write 32 bits to where argument 0 points
#   long V, N  write 64 bits to where each of the first N arguments points
#   bytes B    write them to where argument 0 points (128 at most)
#   text T     write T's address to where argument 1 points
#   attribute  write what argument 1 asks for to where argument 0 points
#   second     write argument 1 to where argument 0 points
#   zeros      write 32 bits of zero to where arguments 1 and 2 point
CUDA = {
    "cuInit": ("nothing",),
    "cuDevicePrimaryCtxSetFlags": ("nothing",),
    "cuDevicePrimaryCtxSetFlags_v2": ("nothing",),
    "cuCtxSetCurrent": ("nothing",),
    "cuDriverGetVersion": ("int", 12030),
    "cuDeviceGetCount": ("int", 1),
    "cuDeviceGet": ("second",),
    "cuCtxGetDevice": ("int", 0),
    "cuDeviceCanAccessPeer": ("int", 0),
    "cuCtxGetCurrent": ("long", 8, 1),
    "cuDevicePrimaryCtxRetain": ("long", 8, 1),
    "cuDevicePrimaryCtxGetState": ("zeros",),
    "cuDeviceTotalMem_v2": ("long", MEMORY, 1),
    "cuMemGetInfo_v2": ("long", MEMORY, 2),
    "cuDeviceGetName": ("bytes", b"A100 that is none\0"),
    "cuDeviceGetUuid": ("bytes", b"\7" * 16),
    "cuDeviceGetUuid_v2": ("bytes", b"\7" * 16),
    "cuDeviceGetPCIBusId": ("bytes", b"0000:07:00.0\0"),
    "cuDeviceGetAttribute": ("attribute",),
    "cuGetErrorName": ("text", b"CUDA_ERROR_OF_NO_DRIVER\0"),
    "cuGetErrorString": ("text", b"this is no driver\0"),
}
NVML = {
    "nvmlInit_v2": ("nothing",),
    "nvmlShutdown": ("nothing",),
    "nvmlDeviceGetCount_v2": ("int", 1),
    "nvmlSystemGetDriverVersion": ("bytes", b"550.54.15\0"),
}
LIBRARIES = {"libcuda.so.1": CUDA, "libnvidia-ml.so.1": NVML}


def encode_for_x86(what, *values):
    """The machine code of a function for x86-64; arguments are in rdi, rsi and rdx."""
    code, tail = b"", b"\x31\xc0\xc3"  # xor eax, eax; ret
    if what == "int":
        code = b"\xc7\x07" + struct.pack("<i", values[0])  # mov dword [rdi], value
    elif what == "long":
        code = b"\x48\xb8" + struct.pack("<Q", values[0])  # mov rax, value
        code += b"".join(
            (b"\x48\x89\x07", b"\x48\x89\x06")[: values[1]]
        )  # mov [rdi], rax; mov [rsi], rax
    elif what == "bytes":
        for at, part in eights(values[0]):
            # mov rax, eight bytes; mov [rdi+at], rax
            code += b"\x48\xb8" + part + b"\x48\x89\x47" + struct.pack("b", at)
    elif what == "text":
        code = (
            b"\x48\x8d\x05" + struct.pack("<i", 6) + b"\x48\x89\x06"
        )  # lea rax, [rip+6]; mov [rsi], rax
        tail += values[0]
    elif what == "attribute":
        code = b"\xb8\x01\x00\x00\x00"  # mov eax, 1
        for attribute, value in zip(ATTRIBUTES, CAPABILITY):
            # cmp esi, attribute; jne over the next; mov eax, value
            code += (
                b"\x83\xfe"
                + struct.pack("b", attribute)
                + b"\x75\x05\xb8"
                + struct.pack("<i", value)
            )
        code += b"\x89\x07"  # mov [rdi], eax
    elif what == "second":
        code = b"\x89\x37"  # mov [rdi], esi
    elif what == "zeros":
        code = (
            b"\xc7\x06" + bytes(4) + b"\xc7\x02" + bytes(4)
        )  # mov dword [rsi], 0; mov dword [rdx], 0
    return code + tail


def encode_for_arm(what, *values):
    """The machine code of a function for aarch64; arguments are in x0 to x2, and x9 is free."""
    code, tail = [], [0x52800000, 0xD65F03C0]  # mov w0, #0; ret
    text = b""
    if what == "int":
        code = [*load_into_x9(values[0]), 0xB9000009]  # str w9, [x0]
    elif what == "long":
        code = [
            *load_into_x9(values[0]),
            *(0xF9000009, 0xF9000029)[: values[1]],
        ]  # str x9, [x0]; str x9, [x1]
    elif what == "bytes":
        for at, part in eights(values[0]):
            # str x9, [x0, #at]
            code += [*load_into_x9(struct.unpack("<Q", part)[0]), 0xF9000009 | (at // 8) << 10]
    elif what == "text":
        code, text = [0x10000089, 0xF9000029], values[0]  # adr x9, #16; str x9, [x1]
    elif what == "attribute":
        code = load_into_x9(1)
        for attribute, value in zip(ATTRIBUTES, CAPABILITY):
            # cmp w1, #attribute; b.ne over the next; mov w9, #value
            code += [0x7100003F | attribute << 10, 0x54000041, 0x52800009 | value << 5]
        code.append(0xB9000009)
    elif what == "second":
        code = [0xB9000001]  # str w1, [x0]
    elif what == "zeros":
        code = [0xB900003F, 0xB900005F]  # str wzr, [x1]; str wzr, [x2]
    words = struct.pack("<%dI" % len(code + tail), *code, *tail)
    return words + text + bytes(-len(text) % 4)


def load_into_x9(value):
    """Instructions that put 64 bits into x9: movz, then movk for each further 16 bits."""
    parts = [(value >> shift & 0xFFFF, shift // 16) for shift in (0, 16, 32, 48)]
    return [(0xF2800009 if hw else 0xD2800009) | hw << 21 | part << 5 for part, hw in parts]


def eights(data):
    """Bytes in pieces of eight, with the place of each."""
    data += bytes(-len(data) % 8)
    return [(at, data[at : at + 8]) for at in range(0, len(data), 8)]


MACHINES = {"x86_64": (62, encode_for_x86), "aarch64": (183, encode_for_arm)}


def shared_object(soname: str, functions: "dict[str, tuple]", machine: str = "x86_64") -> bytes:
    """The bytes of a shared object with some functions (name -> what it does)."""
    number, encode = MACHINES[machine]
    strings, symbols, code = b"\0" + soname.encode() + b"\0", bytes(24), b""
    start = 64 + 4 * 56
    for name, action in functions.items():
        text = encode(*action)
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
    hashes_at, symbols_at, strings_at = places
    tags = (
        (14, 1),  # SONAME, by its place in the strings
        (4, hashes_at),  # HASH
        (6, symbols_at),  # SYMTAB
        (5, strings_at),  # STRTAB
        (10, len(strings)),  # STRSZ
        (11, 24),  # SYMENT
        (0, 0),
    )
    data = b"".join(struct.pack("<QQ", tag, value) for tag, value in tags)
    for place, part in zip(places, (hashes, symbols, strings)):
        data += bytes(place - at - len(data)) + part
    segments = (
        (1, 5, 0, start + len(code), PAGE),  # LOAD, readable and executable
        (1, 6, at, len(data), PAGE),  # LOAD, writable: the loader writes into the dynamic section
        (2, 6, at, 16 * entries, 8),  # DYNAMIC
        (0x6474E551, 6, 0, 0, 16),  # GNU_STACK: no executable stack is asked for
    )
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, number, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0
    )
    for kind, flags, place, size, align in segments:
        head += struct.pack("<IIQQQQQQ", kind, flags, place, place, place, size, size, align)
    return (head + code).ljust(at, b"\0") + data


def load_stub_driver():
    """Load the driver into this process: whoever opens its libraries gets them, by their SONAMEs.

    Returns whether it is there now; never on a machine that is neither x86-64 nor aarch64.
    """
    machine = platform.machine()
    if machine not in MACHINES:
        return False
    folder = tempfile.mkdtemp(prefix="envbuild-driver-")
    try:
        for soname, functions in LIBRARIES.items():
            path = os.path.join(folder, soname)
            with open(path, "wb") as file:
                file.write(shared_object(soname, functions, machine))
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False  # a folder from which nothing may be executed
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return True
