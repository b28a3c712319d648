"""Does ONNX Runtime compute on the GPUs, its CPU fallback switched off.  Not yet seen on a GPU."""

import onnxruntime

CAN = ("product", "convolution", "speed", "endurance")
FLOAT = 1


def encode_varint(value):
    data = b""
    while True:
        part, value = value & 0x7F, value >> 7
        data += bytes([part | (0x80 if value else 0)])
        if not value:
            return data


def encode_field(number, value):
    """One field of a protocol buffer: a number, a text, or a message that is written already."""
    if isinstance(value, int):
        return encode_varint(number << 3) + encode_varint(value)
    data = value.encode("ascii") if isinstance(value, str) else value
    return encode_varint(number << 3 | 2) + encode_varint(len(data)) + data


def encode_tensor(name, shape):
    dimensions = b"".join(encode_field(1, encode_field(1, size)) for size in shape)
    return encode_field(1, name) + encode_field(
        2, encode_field(1, encode_field(1, FLOAT) + encode_field(2, dimensions))
    )


def encode_model(operation, shapes, result):
    """An ONNX model of one node (onnx.proto: ModelProto, GraphProto, NodeProto)."""
    node = (
        encode_field(1, "a")
        + encode_field(1, "b")
        + encode_field(2, "c")
        + encode_field(4, operation)
    )
    inputs = b"".join(
        encode_field(11, encode_tensor(name, shape)) for name, shape in zip("ab", shapes)
    )
    graph = (
        encode_field(1, node)
        + encode_field(2, "probe")
        + inputs
        + encode_field(12, encode_tensor("c", result))
    )
    return encode_field(1, 7) + encode_field(8, encode_field(2, 11)) + encode_field(7, graph)


def open_session(operation, index, data, result):
    options = onnxruntime.SessionOptions()
    provider = (
        "CPUExecutionProvider" if ON_CPU else ("CUDAExecutionProvider", {"device_id": str(index)})
    )
    if not ON_CPU:
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    made = onnxruntime.InferenceSession(
        encode_model(operation, [one.shape for one in data], result), options, providers=[provider]
    )
    return made, made.get_providers()[0]


def perform(task, index, data):
    convolution = task == "convolution"
    shape = (2, 8, 32, 32) if convolution else (data[0].shape[0], data[1].shape[1])
    made, provider = open_session("Conv" if convolution else "MatMul", index, data, shape)
    place = "cuda:%d" % index if provider == "CUDAExecutionProvider" else provider
    feed = dict(zip("ab", data))
    if task == "speed":
        return average(lambda: made.run(None, feed)), place
    return made.run(None, feed)[0], place


document = {"version": onnxruntime.__version__, "devices": [], "results": [], "notes": []}
if hasattr(onnxruntime, "preload_dlls") and not ON_CPU:
    onnxruntime.preload_dlls()
document["is_cuda"] = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
if not document["is_cuda"]:
    document["notes"].append(
        "ONNX Runtime has no CUDAExecutionProvider: %s" % onnxruntime.get_available_providers()
    )
count = 1 if ON_CPU else PARAMETERS.get("gpus", 1)
if ON_CPU or document["is_cuda"]:
    document["devices"] = ["device %d" % index for index in range(count)]
every(document, len(document["devices"]), perform, CAN)
