"""Packages that stand for NumPy, TensorFlow, PyTorch, JAX and CuPy: as much of them as the probes call.

FAKE_FAULT in the environment chooses how they misbehave: "none" (they see no GPU), "cpu" (computed elsewhere),
"wrong" (a wrong product), "raise" (no kernel image), "nan".
"""

from __future__ import annotations

NUMPY = """
class Array(list):
    def astype(self, kind): return self
    def dot(self, other): return Array([[sum(a * b for a, b in zip(row, col)) for col in zip(*other)] for row in self])
    def __sub__(self, other): return Array([[a - b for a, b in zip(r, s)] for r, s in zip(self, other)])
def asarray(value, dtype=None): return Array(value)
class random:
    class RandomState:
        def __init__(self, seed): self.state = seed
        def uniform(self, low, high, size):
            def step():
                self.state = self.state * 1103515245 + 12345 & 0x7fffffff
                return low + (high - low) * self.state / 0x7fffffff
            return Array([[step() for _ in range(8)] for _ in range(8)])
class linalg:
    @staticmethod
    def norm(value): return sum(x * x for row in value for x in row) ** 0.5
"""
FAULT = """
import os, sys
fault = os.environ.get("FAKE_FAULT", "")
def product(a, b):
    if fault == "raise":
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
    value = a.dot(b)
    if fault == "wrong": value[0][0] += 3.0
    if fault == "nan": value[0][0] = float("nan")
    return value
class Nothing:
    def __enter__(self): return self
    def __exit__(self, *_): pass
"""
TENSORFLOW = f"""{FAULT}
__version__ = "2.15.1"
class Tensor:
    def __init__(self, value): self.value = value
    device = "/job:localhost/replica:0/task:0/device:" + ("CPU:0" if fault == "cpu" else "GPU:0")
    def numpy(self): return self.value
class Gpu: name = "/physical_device:GPU:0"
class config:
    @staticmethod
    def list_physical_devices(kind):
        if fault == "none":
            print("Could not load dynamic library 'libcudnn.so.8'; dlerror: no such file", file=sys.stderr)
            return []
        return [Gpu()]
    @staticmethod
    def set_soft_device_placement(flag): assert flag is False
    class experimental:
        @staticmethod
        def set_memory_growth(device, flag): raise RuntimeError("already initialised")
        @staticmethod
        def get_device_details(device): return dict(device_name="Fake A100")
class sysconfig:
    @staticmethod
    def get_build_info(): return dict(cuda_version="12.2")
class test:
    is_built_with_cuda = staticmethod(lambda: True)
def device(name): return Nothing()
def constant(value): return value
def matmul(a, b): return Tensor(product(a, b))
"""
TENSORFLOW_1 = f"""{FAULT}
__version__ = "1.15.5"
class Tensor:
    def __init__(self, value): self.value = value
    device = "/device:GPU:0"
class sysconfig: pass
class test:
    is_built_with_cuda = staticmethod(lambda: True)
def GPUOptions(allow_growth): return None
def ConfigProto(allow_soft_placement, gpu_options): assert allow_soft_placement is False
class Graph:
    def as_default(self): return Nothing()
class Session(Nothing):
    def __init__(self, config=None): pass
    def run(self, tensor): return tensor.value
def device(name): assert name == "/device:GPU:0"; return Nothing()
def constant(value): return value
def matmul(a, b): return Tensor(product(a, b))
"""
DEVICE_LIB = """
class Device:
    def __init__(self, kind, text): self.device_type, self.physical_device_desc = kind, text
def list_local_devices():
    return [Device("CPU", ""), Device("GPU", "device: 0, name: Tesla V100, compute capability: 7.0")]
"""
TORCH = f"""{FAULT}
__version__ = "2.5.1+cu124"
class version: cuda = "12.4"
class device:
    def __init__(self, kind, index): self.text = "cpu" if fault == "cpu" else kind + ":" + str(index)
    def __str__(self): return self.text
class Tensor:
    def __init__(self, value, place=None): self.value, self.device = value, place
    def to(self, place): return Tensor(self.value, place)
    def mm(self, other): return Tensor(product(self.value, other.value), self.device)
    def cpu(self): return self
    def numpy(self): return self.value
def from_numpy(value): return Tensor(value)
class cuda:
    is_available = staticmethod(lambda: fault != "none")
    device_count = staticmethod(lambda: 1)
    get_device_name = staticmethod(lambda index: "Fake A100")
    get_arch_list = staticmethod(lambda: os.environ.get("FAKE_ARCHES", "sm_50 sm_70 sm_80 sm_90").split())
    synchronize = staticmethod(lambda place: None)
    @staticmethod
    def init(): raise RuntimeError("The NVIDIA driver on your system is too old (found version 11000)")
class backends:
    class cudnn: version = staticmethod(lambda: 90100)
    class cuda:
        class matmul: allow_tf32 = True
"""
JAX = f"""{FAULT}
__version__ = "0.4.30"
class config:
    @staticmethod
    def update(key, value): pass
class Device: device_kind, platform, id = "Fake A100", ("cpu" if fault == "cpu" else "gpu"), 0
def devices(kind):
    if fault == "none": raise RuntimeError("Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present.")
    return [Device()]
class Array(list):
    def block_until_ready(self): return self
    def devices(self): return {{Device()}}
def device_put(value, device): return value
class numpy:
    @staticmethod
    def matmul(a, b): return Array(product(a, b))
"""
CUPY = f"""{FAULT}
__version__ = "13.0.0"
class Array(list):
    class device: id = 0
    def dot(self, other):
        import numpy
        return Array(product(numpy.asarray(self), other))
def asarray(value): return Array(value)
def asnumpy(value): return value
class cuda:
    class runtime:
        @staticmethod
        def getDeviceCount():
            if fault == "none": raise RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
            return 1
        runtimeGetVersion = staticmethod(lambda: 12040)
        getDeviceProperties = staticmethod(lambda index: dict(name=b"Fake A100"))
    class Device(Nothing):
        def __init__(self, index): pass
    class Stream:
        class null: synchronize = staticmethod(lambda: None)
"""
