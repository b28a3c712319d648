"""Does PyTorch see the GPUs and compute on them."""

import torch

CAN = ("product", "memory", "convolution", "tf32", "float16", "bfloat16", "training", "speed")
CAN += ("collective", "endurance")
CAN += ("compiled",) if hasattr(torch, "compile") else ()


def wait(device):
    if not ON_CPU:
        torch.cuda.synchronize(device)


def training(device, x, y):
    x, y = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def collective():
    count, size = torch.cuda.device_count(), 16 << 20
    parts = [
        torch.full((size,), float(index + 1), device="cuda:%d" % index) for index in range(count)
    ]

    def once():
        torch.cuda.nccl.all_reduce(parts)
        for index in range(count):
            torch.cuda.synchronize(index)

    started = time.time()
    once()
    error = max(abs(float(part.max()) - count * (count + 1) / 2) for part in parts)
    seconds = average(once) or time.time() - started
    return error, seconds, 4 * size, count


def perform(task, index, data):
    device = torch.device("cpu") if ON_CPU else torch.device("cuda", index)
    if task == "collective":
        return collective()
    if task == "training":
        return training(device, *data), device
    tensors = [torch.from_numpy(one).to(device) for one in data]
    if hasattr(torch.backends.cuda, "matmul"):
        torch.backends.cuda.matmul.allow_tf32 = task == "tf32"
    if task == "speed":

        def once():
            tensors[0].mm(tensors[1])
            wait(device)

        return average(once), device
    if task == "convolution":
        torch.backends.cudnn.allow_tf32 = False
        result = torch.nn.functional.conv2d(*tensors)
    elif task == "memory":
        result = tensors[0].clone()
    elif task in ("float16", "bfloat16"):
        kind = getattr(torch, task)
        result = tensors[0].to(kind).mm(tensors[1].to(kind)).float()
    elif task == "compiled":
        result = torch.compile(lambda a, b: a.mm(b) * 1.0)(*tensors)
    else:
        result = tensors[0].mm(tensors[1])
    wait(device)
    return result.cpu().numpy(), result.device


document = {
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "is_cuda": torch.version.cuda is not None,
    "available": ON_CPU or bool(torch.cuda.is_available()),
    "devices": ["cpu"] if ON_CPU else [],
    "results": [],
    "notes": [],
}
if not document["available"]:
    try:
        torch.cuda.init()
    except Exception as error:  # it says why: driver too old, no device, built without CUDA
        document["notes"].append(last_line(error))
elif not ON_CPU:
    document["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    # of PyTorch's own, and [] without a GPU; "sm_80", "compute_90"
    document["arches"] = (
        list(torch.cuda.get_arch_list()) if hasattr(torch.cuda, "get_arch_list") else []
    )
every(document, len(document["devices"]), perform, CAN)
