"""Does CuPy see the GPUs and compute on them, and Chainer where it is there."""

import cupy

CAN = ("product", "memory", "float16", "training", "speed", "collective", "endurance")
try:
    import chainer

    CAN += ("convolution",)
except ImportError:
    chainer = None


def training(x, y):
    x, y = cupy.asarray(x), cupy.asarray(y)
    weights, losses = cupy.zeros((x.shape[1], 1), dtype="float32"), []
    for _ in range(STEPS):
        error = x.dot(weights) - y
        losses.append(float((error**2).mean()))
        weights -= 0.1 * 2 / len(x) * x.T.dot(error)
    return losses


def collective():
    nccl, count, size = cupy.cuda.nccl, len(document["devices"]), 16 << 20
    groups = nccl.NcclCommunicator.initAll(list(range(count)))
    parts = []
    for index in range(count):
        with cupy.cuda.Device(index):
            parts.append(cupy.full(size, index + 1, dtype="float32"))
    results = [cupy.empty_like(part) for part in parts]

    def once():
        nccl.groupStart()
        for index, (part, result) in enumerate(zip(parts, results)):
            with cupy.cuda.Device(index):
                stream = cupy.cuda.Stream.null.ptr
                groups[index].allReduce(
                    part.data.ptr, result.data.ptr, size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream
                )
        nccl.groupEnd()
        for index in range(count):
            with cupy.cuda.Device(index):
                cupy.cuda.Stream.null.synchronize()

    once()
    error = max(abs(float(result.max()) - count * (count + 1) / 2) for result in results)
    return error, average(once), 4 * size, count


def perform(task, index, data):
    if task == "collective":
        return collective()
    with cupy.cuda.Device(index):
        if task == "training":
            return training(*data), "gpu:%d" % index
        arrays = [cupy.asarray(one) for one in data]
        if task == "speed":

            def once():
                arrays[0].dot(arrays[1])
                cupy.cuda.Stream.null.synchronize()

            return average(once), "gpu:%d" % index
        if task == "convolution":
            result = chainer.functions.convolution_2d(*arrays).array
        elif task == "memory":
            result = arrays[0].copy()
        elif task == "float16":
            result = arrays[0].astype("float16").dot(arrays[1].astype("float16")).astype("float32")
        else:
            result = arrays[0].dot(arrays[1])
        cupy.cuda.Stream.null.synchronize()
        return cupy.asnumpy(result), "gpu:%d" % result.device.id


document = {"version": cupy.__version__, "devices": [], "results": [], "notes": []}
try:
    count = cupy.cuda.runtime.getDeviceCount()
    document["cuda"] = str(cupy.cuda.runtime.runtimeGetVersion())
except Exception as error:
    count = 0
    document["notes"].append(last_line(error))
if chainer is not None and not chainer.backends.cuda.available:
    document["notes"].append("Chainer does not find CuPy")
for index in range(count):
    properties = getattr(cupy.cuda.runtime, "getDeviceProperties", None)
    name = properties(index)["name"] if properties else "device %d" % index
    document["devices"].append(name.decode("utf-8", "replace") if isinstance(name, bytes) else name)
every(document, count, perform, CAN)
