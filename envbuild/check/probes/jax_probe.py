"""Does JAX see the GPUs and compute on them."""

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax

CAN = (
    "product",
    "memory",
    "convolution",
    "tf32",
    "float16",
    "bfloat16",
    "compiled",
    "training",
    "speed",
)
CAN += ("collective", "endurance")


def training(device, x, y):
    numpy = jax.numpy
    x, y = jax.device_put(x, device), jax.device_put(y, device)
    keys = jax.random.split(jax.random.PRNGKey(3))
    weights = [
        jax.device_put(jax.random.uniform(key, shape, minval=-0.3, maxval=0.3), device)
        for key, shape in zip(keys, ((16, 32), (32, 1)))
    ]

    def loss(weights):
        return numpy.mean(
            (numpy.matmul(numpy.tanh(numpy.matmul(x, weights[0])), weights[1]) - y) ** 2
        )

    step = jax.value_and_grad(loss)
    losses = []
    for _ in range(STEPS):
        value, slopes = step(weights)
        weights = [weight - 0.1 * slope for weight, slope in zip(weights, slopes)]
        losses.append(float(value))
    return losses, where(weights[0])


def collective():
    count, size = len(devices), 16 << 20
    add = jax.pmap(lambda value: jax.lax.psum(value, "i"), "i")
    parts = jax.numpy.stack([jax.numpy.full((size,), float(index + 1)) for index in range(count)])
    result = add(parts)
    error = abs(float(result.max()) - count * (count + 1) / 2)
    return error, average(lambda: add(parts).block_until_ready()), 4 * size, count


def where(array):
    place = array.devices() if callable(getattr(array, "devices", None)) else {array.device()}
    return " ".join("%s:%d" % (d.platform, d.id) for d in place)


def perform(task, index, data):
    if task == "collective":
        return collective()
    device = devices[index]
    if task == "training":
        return training(device, *data)
    arrays = [jax.device_put(one, device) for one in data]
    matmul = jax.numpy.matmul
    if task == "speed":
        return average(lambda: matmul(*arrays).block_until_ready()), where(arrays[0])
    if task == "convolution":
        result = jax.lax.conv(*arrays, (1, 1), "VALID")
    elif task == "memory":
        result = arrays[0] + 0
    elif task in ("float16", "bfloat16"):
        kind = getattr(jax.numpy, task)
        result = matmul(*[one.astype(kind) for one in arrays]).astype("float32")
    elif task == "tf32":
        result = matmul(*arrays, precision=jax.lax.Precision.DEFAULT)
    elif task == "compiled":
        result = jax.jit(lambda a, b: matmul(a, b) * 1.0)(*arrays)
    else:
        result = matmul(*arrays)
    result.block_until_ready()
    return result, where(result)


document = {"version": jax.__version__, "devices": [], "results": [], "notes": []}
jax.config.update("jax_default_matmul_precision", "float32")
try:
    devices = jax.devices("cpu" if ON_CPU else "gpu")[: 1 if ON_CPU else None]
except RuntimeError as error:  # JAX goes on with the CPU, so it has to be asked for the GPU by name
    devices = []
    document["notes"].append(last_line(error))
document["devices"] = [device.device_kind for device in devices]
every(document, len(devices), perform, CAN)
