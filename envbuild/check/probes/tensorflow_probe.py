"""Does TensorFlow (1.12 to 2.x) see the GPUs and compute on them.  Not yet seen on a GPU."""

os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
import tensorflow as tf

KIND = "CPU" if ON_CPU else "GPU"
CAN_1 = ("product", "memory", "convolution", "float16", "training", "endurance")
CAN_2 = CAN_1 + ("tf32", "bfloat16", "compiled", "speed", "collective")


def convolve(x, w):
    """Channels last: the CPU has no other kernel."""
    x, w = tf.constant(x.transpose(0, 2, 3, 1)), tf.constant(w.transpose(2, 3, 1, 0))
    return tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="VALID")


def matrix(task, data):
    """The tensor of one task, in a graph or eagerly."""
    if task == "convolution":
        return convolve(*data)
    tensors = [tf.constant(one) for one in data]
    if task == "memory":
        return tf.identity(tensors[0])
    if task in ("float16", "bfloat16"):
        kind = getattr(tf, task)
        return tf.cast(tf.matmul(tf.cast(tensors[0], kind), tf.cast(tensors[1], kind)), tf.float32)
    if task == "compiled":
        product = lambda a, b: tf.matmul(a, b) * 1.0  # noqa: E731
        try:
            return tf.function(product, jit_compile=True)(*tensors)
        except TypeError:  # before 2.5
            return tf.function(product, experimental_compile=True)(*tensors)
    return tf.matmul(*tensors)


def as_array(task, value):
    return value.transpose(0, 3, 1, 2) if task == "convolution" else value


def with_session(task, index, data):
    """TensorFlow 1: a graph and a session.

    Soft placement off, so that a missing kernel is an error.
    """
    options = tf.GPUOptions(allow_growth=True)
    config = tf.ConfigProto(allow_soft_placement=False, gpu_options=options)
    with tf.Graph().as_default(), tf.device("/device:%s:%d" % (KIND, index)):
        if task == "training":
            return session_training(config, *data)
        result = matrix(task, data)
        with tf.Session(config=config) as session:
            return as_array(task, session.run(result)), result.device


def session_training(config, x, y):
    first = tf.Variable(tf.random.stateless_uniform((16, 32), [3, 4], -0.3, 0.3))
    second = tf.Variable(tf.random.stateless_uniform((32, 1), [5, 6], -0.3, 0.3))
    loss = tf.reduce_mean(
        (tf.matmul(tf.tanh(tf.matmul(tf.constant(x), first)), second) - tf.constant(y)) ** 2
    )
    slopes = tf.gradients(loss, [first, second])
    step = [tf.assign_sub(v, 0.1 * slope) for v, slope in zip((first, second), slopes)]
    with tf.Session(config=config) as session:
        session.run([first.initializer, second.initializer])
        return [session.run([loss, step])[0] for _ in range(STEPS)], loss.device


def eagerly(task, index, data):
    if task == "collective":
        return collective()
    switch = getattr(tf.config.experimental, "enable_tensor_float_32_execution", None)
    if switch:
        switch(task == "tf32")
    with tf.device("/%s:%d" % (KIND, index)):
        if task == "training":
            return training(*data)
        if task == "speed":
            tensors = [tf.constant(one) for one in data]
            return average(lambda: tf.matmul(*tensors)[:1, :1].numpy()), tensors[0].device
        result = matrix(task, data)
    return as_array(task, result.numpy()), result.device


def training(x, y):
    x, y = tf.constant(x), tf.constant(y)
    weights = [
        tf.Variable(tf.random.stateless_uniform(shape, seed, -0.3, 0.3))
        for shape, seed in (((16, 32), [3, 4]), ((32, 1), [5, 6]))
    ]
    losses = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                (tf.matmul(tf.tanh(tf.matmul(x, weights[0])), weights[1]) - y) ** 2
            )
        for variable, slope in zip(weights, tape.gradient(loss, weights)):
            variable.assign_sub(0.1 * slope)
        losses.append(float(loss))
    return losses, loss.device


def collective():
    names = ["/gpu:%d" % index for index in range(len(document["devices"]))]
    strategy = tf.distribute.MirroredStrategy(names, cross_device_ops=tf.distribute.NcclAllReduce())
    size, count = 16 << 20, len(names)

    @tf.function
    def once():
        def step():
            own = tf.distribute.get_replica_context().replica_id_in_sync_group + 1
            value = tf.fill([size], tf.cast(own, tf.float32))
            return tf.reduce_max(
                tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)
            )

        run = getattr(strategy, "run", None) or strategy.experimental_run_v2
        return strategy.experimental_local_results(run(step))

    error = max(abs(float(part) - count * (count + 1) / 2) for part in once())
    return error, average(lambda: [part.numpy() for part in once()]), 4 * size, count


def list_gpus():
    """Names of the GPUs, and what could not be set."""
    list_devices = (
        getattr(tf.config, "list_physical_devices", None)
        or tf.config.experimental.list_physical_devices
    )
    devices = list_devices("GPU")
    details = getattr(tf.config.experimental, "get_device_details", None)
    for device in devices:
        try:
            tf.config.experimental.set_memory_growth(device, True)
        except (RuntimeError, ValueError) as error:
            document["notes"].append(last_line(error))
    tf.config.set_soft_device_placement(False)
    return [details(d).get("device_name", d.name) if details else d.name for d in devices]


def list_gpus_1():
    from tensorflow.python.client import device_lib

    return [
        d.physical_device_desc for d in device_lib.list_local_devices() if d.device_type == "GPU"
    ]


document = {"version": tf.__version__, "devices": [], "results": [], "notes": []}
build = getattr(tf.sysconfig, "get_build_info", None)
document["build"] = {
    k: v for k, v in (build() if build else {}).items() if isinstance(v, (str, bool, list))
}
document["is_cuda"] = bool(tf.test.is_built_with_cuda())
first = tf.__version__.startswith("1.")
if ON_CPU:
    document["devices"] = ["cpu"]
else:
    document["devices"] = list_gpus_1() if first else list_gpus()
every(
    document,
    len(document["devices"]),
    with_session if first else eagerly,
    CAN_1 if first else CAN_2,
)
