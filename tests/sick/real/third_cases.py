"""A third blind round, put down from users' threads that were read before; no tree was tried before all were written.

Two trees were taken out again: their proof showed them healthy (tf-keras 2.18 under TensorFlow 2.15, and torch 2.5's
cpp_extension under setuptools 82).  The healthy JAX got its CUDA plug-in, without which it is rightly told.
"""

from __future__ import annotations

from tests.sick.real.cases import CU124, LIBRARY_PATH, T251, healthy, of, sick
from tests.sick.real.more_cases import FINE, HF
from tests.sick.real.sight_cases import IMPORTS

STACK = "third"
TORCH_STACK = "third-torch"
ANY = ".*"
SHOWN = "; print('FINE')"
PANDAS = "pandas==2.2.3 numpy<2"
TO_EXCEL = "import pandas as pd\nframe = pd.DataFrame({'a': [1]})\nframe.to_excel('out.xlsx')\n"
XLS = "import pandas as pd\nframe = pd.read_excel('a.xls')\n"
NETCDF = "import xarray as xr\ndata = xr.open_dataset('a.nc', engine='netcdf4')\n"
STUDY = (
    "import optuna\nstudy = optuna.create_study()\n"
    "study.optimize(lambda trial: trial.suggest_float('x', 0, 1), n_trials=3)\n"
)
SLICE = f"{STUDY}figure = optuna.visualization.plot_slice(study)\n"
IMPORTANCE = f"{STUDY}figure = optuna.visualization.plot_param_importances(study)\n"
POLE = "import gymnasium as gym\nenv = gym.make('CartPole-v1', render_mode='rgb_array')\nenv.reset()\nenv.render()\n"
LANDER = "import gymnasium as gym\nenv = gym.make('LunarLander-v3')\n"
LEIDEN = (
    "import scanpy as sc, anndata, numpy as np\n"
    "cells = anndata.AnnData(np.random.rand(30, 5))\nsc.pp.neighbors(cells)\nsc.tl.leiden(cells)\n"
)
VISION = "from transformers import AutoModelForVision2Seq\n"
FLOAT0 = "from jax.interpreters.ad import recast_to_float0\n"
LORA = (
    "from diffusers import StableDiffusionPipeline\n"
    "pipe = StableDiffusionPipeline.from_pretrained('model')\npipe.load_lora_weights('lora.safetensors')\n"
)
ATTENTION = (
    "from transformers import AutoModelForCausalLM\n"
    "model = AutoModelForCausalLM.from_pretrained('model', attn_implementation='{}')\n"
)
SMALL_LLAMA = (
    "import torch; from transformers import AutoModelForCausalLM as M, LlamaConfig as C; "
    "M.from_config(C(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=8), "
    "attn_implementation='{}', torch_dtype=torch.bfloat16)"
)
COMPARE = "from torchmetrics.utilities.imports import _compare_version\n"
EXTENSION = "from torch.utils.cpp_extension import CUDAExtension, BuildExtension\n"
NCCL = "import cupy\nfrom cupy.cuda import nccl\nname = nccl.get_unique_id()\n"
SESSION = "import onnxruntime\nsession = onnxruntime.InferenceSession('m.onnx', providers=['CUDAExecutionProvider'])\n"
ADAPTERS = "from transformers import TrainingArguments, AutoModel, AutoTokenizer\n"
GRAPH = "import igraph\ngraph = igraph.Graph()\n"

THIRD_SICK = (
    sick(
        "pandas writes Excel without openpyxl",
        STACK,
        of(PANDAS),
        TO_EXCEL,
        r"openpyxl",
        "pandas",
        ANY,
        r"openpyxl",
        hint="openpyxl",
        project=TO_EXCEL,
        source="pandas-dev/pandas#41547",
    ),
    sick(
        "pandas reads old Excel without xlrd",
        STACK,
        of(PANDAS),
        "import pathlib, pandas; pathlib.Path('a.xls').write_bytes(bytes.fromhex('D0CF11E0A1B11AE1') + b'0' * 9); "
        "pandas.read_excel('a.xls')",
        r"xlrd",
        "pandas",
        ANY,
        r"xlrd",
        hint="xlrd",
        project=XLS,
        source="pymedphys/pymedphys#489",
    ),
    sick(
        "xarray opens netCDF without netCDF4",
        STACK,
        of(f"xarray==2024.9.0 {PANDAS} scipy"),
        "import pathlib; pathlib.Path('a.nc').write_bytes(b'CDF'); "
        + NETCDF.replace("\n", "; ", 1),
        r"unrecognized engine",
        "xarray",
        ANY,
        r"net[cC][dD][fF]4",
        hint="netcdf4|netCDF4",
        project=NETCDF,
        source="pydata/xarray#7247",
    ),
    sick(
        "Optuna plots without Plotly",
        STACK,
        of("optuna==4.1.0 numpy<2"),
        SLICE,
        r"plotly",
        "optuna",
        ANY,
        r"plotly",
        hint="plotly",
        project=SLICE,
        source="optuna/optuna#1339",
    ),
    sick(
        "Optuna plots importances without scikit-learn",
        STACK,
        of("optuna==4.1.0 numpy<2 plotly==5.24.1"),
        IMPORTANCE,
        r"sklearn|scikit-learn",
        "optuna plotly",
        ANY,
        r"sklearn|scikit-learn",
        hint="scikit-learn",
        project=IMPORTANCE,
        source="optuna/optuna#3332",
    ),
    sick(
        "Gymnasium draws without pygame",
        STACK,
        of("gymnasium==0.29.1 numpy<2"),
        POLE,
        r"pygame",
        "gymnasium",
        ANY,
        r"pygame",
        hint="pygame|gymnasium\\[classic",
        project=POLE,
        source="openai/gym#2691",
    ),
    sick(
        "Gymnasium's lander without Box2D",
        STACK,
        of("gymnasium==1.0.0 numpy<2"),
        LANDER,
        r"[Bb]ox2[Dd]",
        "gymnasium",
        ANY,
        r"[Bb]ox2[Dd]",
        hint="box2d",
        project=LANDER,
        source="openai/gym#2781",
    ),
    sick(
        "scanpy's leiden without its packages",
        STACK,
        of("scanpy==1.10.3 numpy<2 scipy<1.14 anndata<0.11"),
        LEIDEN,
        r"leiden|igraph",
        "scanpy",
        ANY,
        r"leiden|igraph",
        hint="leidenalg|igraph|scanpy\\[leiden",
        project=LEIDEN,
        source="scverse/scanpy-tutorials#76",
    ),
    sick(
        "igraph 0.1.11, which is another project",
        STACK,
        of("setuptools<81 wheel", "igraph==0.1.11 ipython numpy<2"),
        GRAPH,
        r"Error|jgraph",
        "igraph",
        ANY,
        r"igraph",
        hint="igraph",
        project=GRAPH,
        source="scverse/scanpy#138",
    ),
    sick(
        "mlflow 1.26 under protobuf 4",
        STACK,
        of("mlflow==1.26.0 protobuf<4 setuptools<81", "--no-deps protobuf==4.21.12"),
        "import mlflow",
        r"Descriptors cannot",
        "mlflow",
        IMPORTS,
        r"protobuf|Descriptors",
        hint="protobuf<|mlflow",
        source="mlflow/mlflow#5949",
    ),
    sick(
        "mlflow 1.26.1 under protobuf 3.18",
        STACK,
        of("mlflow==1.26.1 setuptools<81", "--no-deps protobuf==3.18.1"),
        "import mlflow",
        r"AttributeError|TypeError",
        "mlflow",
        IMPORTS,
        r"protobuf",
        hint="protobuf",
        source="mlflow/mlflow#6072",
    ),
    sick(
        "optax 0.1.3 with an old chex under a newer jax",
        STACK,
        of(
            "jax==0.4.14 jaxlib==0.4.14 scipy<1.12 numpy<2",
            "--no-deps optax==0.1.3 chex==0.1.3",
            "absl-py toolz dm-tree numpy<2",
        ),
        "import optax",
        r"AttributeError",
        "jax optax",
        IMPORTS,
        r"optax|chex",
        hint="optax|chex",
        source="google-deepmind/optax#456",
    ),
    sick(
        "jax-cfd 0.2.0 under a newer jax",
        STACK,
        of(
            "--no-deps jax-cfd==0.2.0",
            "jax==0.4.26 jaxlib==0.4.26 numpy<2 scipy<1.13 tree-math xarray pillow",
        ),
        "import jax_cfd.base",
        r"DeviceArray|AttributeError",
        "jax jax-cfd",
        IMPORTS,
        r"jax.cfd|DeviceArray",
        hint="jax",
        source="google/jax-cfd#226",
    ),
    sick(
        "jax has no recast_to_float0",
        STACK,
        of("jax==0.4.35 jaxlib==0.4.35 numpy<2"),
        FLOAT0,
        r"recast_to_float0",
        "jax",
        "project-imports",
        r"recast_to_float0",
        hint="jax|change that line",
        project=FLOAT0,
        source="jax-ml/jax#24478",
    ),
    sick(
        "transformers 5 has no AutoModelForVision2Seq",
        STACK,
        of("transformers==5.5.0"),
        VISION,
        r"AutoModelForVision2Seq",
        "transformers",
        "project-imports",
        r"AutoModelForVision2Seq",
        hint="transformers|change that line",
        project=VISION,
        source="huggingface/transformers#45278",
    ),
    sick(
        "adapter-transformers over transformers",
        STACK,
        of("transformers==4.33.3 numpy<2", "--no-deps adapter-transformers==3.2.1"),
        "from transformers.utils import check_peft_version",
        r"check_peft_version|Error",
        "transformers adapter-transformers",
        ANY,
        r"adapter.transformers",
        hint="adapter-transformers|keep one",
        project=ADAPTERS,
        source="huggingface/transformers#26465",
    ),
    sick(
        "onnxruntime for the CPU, asked for CUDA",
        STACK,
        of("onnxruntime==1.20.1 numpy<2"),
        "import onnxruntime as o; print('CUDA', 'CUDAExecutionProvider' in o.get_available_providers())",
        r"CUDA False",
        "onnxruntime",
        ANY,
        r"CUDAExecutionProvider|onnxruntime",
        hint="onnxruntime-gpu",
        project=SESSION,
        source="nazdridoy/kokoro-tts#59",
    ),
    sick(
        "scikit-image 0.21 under NumPy 2",
        STACK,
        of("scikit-image==0.21.0 numpy<2", "--no-deps numpy==2.0.2"),
        "import skimage.morphology",
        r"numpy|_ARRAY_API",
        "scikit-image",
        IMPORTS,
        r"numpy|NumPy|_ARRAY_API",
        hint="numpy<2|scikit-image",
        source="scikit-image/scikit-image#7118",
    ),
    sick(
        "diffusers loads LoRA without peft",
        TORCH_STACK,
        of(
            T251,
            "diffusers==0.31.0 transformers==4.46.3 accelerate==1.1.1 huggingface-hub<1 setuptools<81",
        ),
        "from diffusers import StableDiffusionPipeline as P; P.load_lora_weights(None, 'lora.safetensors')",
        r"PEFT backend is required",
        "torch diffusers transformers accelerate",
        ANY,
        r"peft|PEFT",
        hint="peft",
        project=LORA,
        source="huggingface/diffusers#9670",
    ),
    sick(
        "transformers told to take FlashAttention, which is not there",
        TORCH_STACK,
        of(T251, HF, "accelerate==1.1.1 setuptools<81"),
        SMALL_LLAMA.format("flash_attention_2"),
        r"flash_attn",
        "torch transformers accelerate",
        ANY,
        r"flash.attn|FlashAttention",
        hint="flash-attn|flash_attn",
        project=ATTENTION.format("flash_attention_2"),
        source="huggingface/trl#4175",
    ),
    sick(
        "torchmetrics 1 has no _compare_version",
        TORCH_STACK,
        of(T251, "torchmetrics==1.5.2 setuptools<81"),
        COMPARE,
        r"_compare_version",
        "torch torchmetrics",
        "project-imports",
        r"_compare_version",
        hint="torchmetrics|change that line",
        project=COMPARE,
        source="Lightning-AI/torchmetrics#1923",
    ),
    sick(
        "mmdet 3.3 with mmcv 2.2",
        TORCH_STACK,
        of(
            T251,
            "mmdet==3.3.0 mmcv-lite==2.2.0 mmengine setuptools<81 opencv-python-headless numpy<2",
        ),
        "import mmdet",
        r"MMCV==2\.2\.0|Error",
        "torch mmdet",
        IMPORTS,
        r"mmcv|MMCV",
        hint="mmcv|mmdet",
        source="open-mmlab/mmcv#3096",
    ),
    sick(
        "peft 0.17 under transformers 5",
        TORCH_STACK,
        of(T251, "transformers==5.5.0 accelerate peft==0.17.1 setuptools<81"),
        "import peft",
        r"HybridCache",
        "torch peft transformers",
        IMPORTS,
        r"HybridCache|peft",
        hint="peft|transformers",
        source="huggingface/peft#3333",
    ),
    sick(
        "CuPy's NCCL, which is not there",
        TORCH_STACK,
        of(
            f"cupy-cuda12x==13.3.0 numpy<2 {CU124}",
            remove=("nvidia-nccl-cu12",),
            environment=LIBRARY_PATH,
        ),
        "from cupy.cuda import nccl; nccl.get_unique_id",
        r"get_unique_id|nccl",
        "cupy-cuda12x",
        ANY,
        r"nccl|NCCL",
        hint="nvidia-nccl",
        project=NCCL,
        source="alpa-projects/alpa#330",
    ),
)

THIRD_HEALTHY = (
    healthy(
        "pandas writes Excel with openpyxl",
        STACK,
        of(f"{PANDAS} openpyxl"),
        f"{TO_EXCEL}print('FINE')",
        FINE,
        "pandas openpyxl",
        project=TO_EXCEL,
    ),
    healthy(
        "pandas writes Excel with XlsxWriter alone",
        STACK,
        of(f"{PANDAS} xlsxwriter"),
        f"{TO_EXCEL}print('FINE')",
        FINE,
        "pandas xlsxwriter",
        project=TO_EXCEL,
    ),
    healthy(
        "xarray opens netCDF with netCDF4",
        STACK,
        of(f"xarray==2024.9.0 {PANDAS} netcdf4"),
        "import xarray; print('netcdf4' in xarray.backends.list_engines(), 'FINE')",
        "True FINE",
        "xarray netcdf4",
        project=NETCDF,
    ),
    healthy(
        "xarray told to open netCDF by SciPy",
        STACK,
        of(f"xarray==2024.9.0 {PANDAS} scipy"),
        "import xarray; print('scipy' in xarray.backends.list_engines(), 'FINE')",
        "True FINE",
        "xarray scipy",
        project=NETCDF.replace("netcdf4", "scipy"),
    ),
    healthy(
        "Optuna plots with Plotly and scikit-learn",
        STACK,
        of("optuna==4.1.0 numpy<2 plotly==5.24.1 scikit-learn"),
        f"{SLICE}{IMPORTANCE}print('FINE')",
        FINE,
        "optuna plotly scikit-learn",
        project=f"{SLICE}{IMPORTANCE}",
    ),
    healthy(
        "Optuna without plots",
        STACK,
        of("optuna==4.1.0 numpy<2"),
        f"{STUDY}print('FINE')",
        FINE,
        "optuna",
        project=STUDY,
    ),
    healthy(
        "Optuna plots only where it can",
        STACK,
        of("optuna==4.1.0 numpy<2"),
        f"{STUDY}print(optuna.visualization.is_available(), 'FINE')",
        "False FINE",
        "optuna",
        project=f"{STUDY}if optuna.visualization.is_available():\n    optuna.visualization.plot_slice(study).show()\n",
    ),
    healthy(
        "Gymnasium without pictures",
        STACK,
        of("gymnasium==0.29.1 numpy<2"),
        "import gymnasium as gym; gym.make('CartPole-v1').reset(); print('FINE')",
        FINE,
        "gymnasium",
        project="import gymnasium as gym\nenv = gym.make('CartPole-v1')\nenv.reset()\n",
    ),
    healthy(
        "Gymnasium with pygame",
        STACK,
        of("gymnasium==0.29.1 numpy<2 pygame"),
        f"{POLE}print('FINE')",
        FINE,
        "gymnasium pygame",
        project=POLE,
    ),
    healthy(
        "scanpy with leiden",
        STACK,
        of("scanpy==1.10.3 numpy<2 scipy<1.14 anndata<0.11 leidenalg igraph"),
        f"{LEIDEN}print('FINE')",
        FINE,
        "scanpy leidenalg igraph",
        project=LEIDEN,
    ),
    healthy(
        "scanpy without leiden",
        STACK,
        of("scanpy==1.10.3 numpy<2 scipy<1.14 anndata<0.11"),
        "import scanpy; print('FINE')",
        FINE,
        "scanpy",
        project="import scanpy as sc\ncells = sc.read_h5ad('a.h5ad')\nsc.pp.neighbors(cells)\n",
    ),
    healthy("igraph", STACK, of("igraph"), f"{GRAPH}print('FINE')", FINE, "igraph", project=GRAPH),
    healthy(
        "mlflow 2 with its protobuf",
        STACK,
        of("mlflow==2.19.0 numpy<2 setuptools<81"),
        "import mlflow; print('FINE')",
        FINE,
        "mlflow",
    ),
    healthy(
        "optax and chex of the same time as jax",
        STACK,
        of("jax[cuda12] optax chex"),
        "import optax, chex; print('FINE')",
        FINE,
        "jax optax chex",
    ),
    healthy(
        "onnxruntime that takes what there is",
        STACK,
        of("onnxruntime==1.20.1 numpy<2"),
        "import onnxruntime; print('FINE')",
        FINE,
        "onnxruntime",
        project="import onnxruntime\nsession = onnxruntime.InferenceSession('m.onnx', providers=onnxruntime.get_available_providers())\n",
    ),
    healthy(
        "OpenCV twice, of one release",
        STACK,
        of("opencv-python-headless==4.10.0.84 opencv-contrib-python-headless==4.10.0.84 numpy<2"),
        "import cv2; cv2.aruco.CharucoDetector; print('FINE')",
        FINE,
        "opencv-python-headless opencv-contrib-python-headless",
        project="import cv2\nimage = cv2.imread('a.png')\n",
    ),
    healthy(
        "scikit-image under NumPy 2",
        STACK,
        of("scikit-image numpy==2.0.2"),
        "import skimage.morphology; print('FINE')",
        FINE,
        "scikit-image",
    ),
    healthy(
        "diffusers loads LoRA with peft",
        TORCH_STACK,
        of(
            T251,
            "diffusers==0.31.0 transformers==4.46.3 accelerate==1.1.1 huggingface-hub<1 peft==0.13.2 setuptools<81",
        ),
        "from diffusers.utils import USE_PEFT_BACKEND; print(USE_PEFT_BACKEND, 'FINE')",
        "True FINE",
        "torch diffusers transformers accelerate peft",
        project=LORA,
    ),
    healthy(
        "transformers told to take torch's own attention",
        TORCH_STACK,
        of(T251, HF, "accelerate==1.1.1 setuptools<81"),
        f"{SMALL_LLAMA.format('sdpa')}{SHOWN}",
        FINE,
        "torch transformers accelerate",
        project=ATTENTION.format("sdpa"),
    ),
    healthy(
        "torch's cpp_extension with setuptools",
        TORCH_STACK,
        of(T251, "setuptools==80.9.0"),
        f"import torch.utils.cpp_extension{SHOWN}",
        FINE,
        "torch setuptools",
        project=EXTENSION,
    ),
    healthy(
        "CuPy's NCCL",
        TORCH_STACK,
        of(
            f"cupy-cuda12x==13.3.0 numpy<2 {CU124}",
            environment={
                "LD_LIBRARY_PATH": LIBRARY_PATH["LD_LIBRARY_PATH"] + ":{site}/nvidia/nccl/lib"
            },
        ),
        f"from cupy.cuda import nccl; nccl.get_unique_id{SHOWN}",
        FINE,
        "cupy-cuda12x",
        project=NCCL,
    ),
)
