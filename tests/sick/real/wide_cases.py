"""Trees of a wide round: wrong names, variables, other systems; expected so before check was asked."""

from __future__ import annotations

from tests.sick.real.cases import healthy, of, sick
from tests.sick.real.more_cases import FINE, stack_of
from tests.sick.real.sight_cases import IMPORTS

STACK = "wide"
BOOST = """\
import lightgbm, numpy
model = lightgbm.LGBMRegressor({})
model.fit(numpy.random.rand(50, 2), numpy.random.rand(50))
"""
XGB = "import xgboost\nmodel = xgboost.XGBRegressor(device='cuda')\n"
XGB_PROOF = "import numpy; model.fit(numpy.random.rand(50, 2), numpy.random.rand(50))"
PLOT = "import matplotlib.pyplot as plt\nplt.plot([1])\n"
MESSAGE = "from google.protobuf import descriptor_pb2"
PROTOBUF = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
OTHER_SYSTEM = "--only-binary :all: --python-platform"
OTHER_PYTHON = "--only-binary :all: --python-version 3.10 --target {tree}/opt/py310"

WIDE_SICK = (
    sick(
        "docx, which is not python-docx",
        STACK,
        of("docx==0.2.4"),
        "import docx",
        r"exceptions",
        "docx",
        IMPORTS,
        r"docx",
        hint="python-docx",
        source="python-openxml/python-docx#1230",
    ),
    sick(
        "whisper, which is Graphite's",
        STACK,
        of("whisper==1.1.10"),
        "import whisper; whisper.load_model",
        r"load_model",
        "whisper",
        IMPORTS,
        r"whisper",
        hint="openai-whisper",
        project="import whisper\nmodel = whisper.load_model('base')\n",
        source="VocaHQ/vocalinux#33",
    ),
    sick(
        "protobuf told to use its old C++ part",
        STACK,
        of("protobuf==5.29.3", environment={PROTOBUF: "cpp"}),
        MESSAGE,
        r"_message",
        "protobuf",
        IMPORTS,
        r"protobuf",
        hint=PROTOBUF,
        project=f"{MESSAGE}\n",
        source="protocolbuffers/protobuf#11062",
    ),
    sick(
        "PYTHONPATH with packages of another Python",
        STACK,
        of(
            "numpy==2.1.3",
            f"{OTHER_PYTHON} numpy==1.26.4",
            environment={"PYTHONPATH": "{tree}/opt/py310"},
        ),
        "import numpy",
        r"_multiarray_umath|C-extensions",
        "numpy",
        IMPORTS,
        r"numpy",
        hint="PYTHONPATH",
        source="numpy/numpy#14661",
    ),
    sick(
        "a wheel for musl",
        STACK,
        of(f"{OTHER_SYSTEM} x86_64-unknown-linux-musl pydantic==2.10.6"),
        "import pydantic; pydantic.BaseModel",
        r"_pydantic_core",
        "pydantic",
        "shared-libraries",
        r"musl",
        hint="wheel",
        source="uv's documentation, --python-platform",
    ),
    sick(
        "wheels for aarch64",
        STACK,
        of(f"{OTHER_SYSTEM} aarch64-unknown-linux-gnu numpy==2.1.3"),
        "import numpy",
        r"_multiarray_umath",
        "numpy",
        "shared-libraries",
        r"aarch64",
        hint="wheel",
        source="numpy/numpy#22517 (of its kind)",
    ),
    sick(
        "LightGBM asked for CUDA",
        STACK,
        of("lightgbm==4.5.0 scikit-learn<1.6 numpy<2.2"),
        BOOST.format("device='cuda'"),
        r"CUDA Tree Learner was not enabled",
        "lightgbm scikit-learn",
        "entry-points",
        r"LightGBM",
        hint="conda-forge",
        project=BOOST.format("device='cuda'"),
        source="lightgbm-org/LightGBM#6631",
    ),
    sick(
        "xgboost-cpu asked for CUDA",
        STACK,
        of("xgboost-cpu==2.1.3 scikit-learn<1.6 numpy<2.2"),
        XGB + XGB_PROOF,
        r"not compiled with|CUDA",
        "xgboost-cpu scikit-learn",
        "entry-points",
        r"XGBoost",
        hint='"xgboost"',
        project=XGB,
        source="dmlc/xgboost#11482",
    ),
    sick(
        "Matplotlib told to draw in a notebook",
        STACK,
        of(
            "matplotlib==3.9.2",
            environment={"MPLBACKEND": "module://matplotlib_inline.backend_inline"},
        ),
        PLOT,
        r"matplotlib_inline",
        "matplotlib",
        IMPORTS,
        r"matplotlib_inline",
        hint="MPLBACKEND",
        project=PLOT,
        source="matplotlib/matplotlib#8929 (of its kind)",
    ),
    sick(
        "numba 0.60 with llvmlite of another release",
        STACK,
        of("numba==0.60.0 numpy<2.1", "--no-deps llvmlite==0.46.0"),
        "import numba; print(numba.njit(lambda x: x + 1)(1))",
        r"llvmlite",
        "numba",
        "companions",
        r"llvmlite",
        hint="llvmlite",
        source="META numba 0.60.0",
    ),
    sick(
        "two releases of OpenCV, headless both",
        STACK,
        of(
            "--no-deps opencv-contrib-python-headless==4.10.0.84",
            "--no-deps opencv-python-headless==4.6.0.66 numpy<2.2",
        ),
        "import cv2; cv2.aruco.CharucoDetector",
        r"no attribute|Error",
        "opencv-contrib-python-headless",
        "exclusive",
        r"opencv",
        hint="opencv",
        source="opencv/opencv-python (README, installation)",
    ),
)

WIDE_HEALTHY = (
    stack_of("pathlib2 dataclasses enum34 scipy", "scipy", stack=STACK),
    stack_of("pynvml nvidia-ml-py", "pynvml", "pynvml==11.5.3 nvidia-ml-py", stack=STACK),
    stack_of("importlib-metadata importlib-resources pandas", "pandas", stack=STACK),
    healthy(
        "python-docx and PyMuPDF",
        STACK,
        of("python-docx pymupdf"),
        "import docx, fitz; docx.Document; fitz.open; print('FINE')",
        FINE,
        "python-docx pymupdf",
        project="import docx, fitz\nfrom docx import Document\nfitz.open\n",
    ),
    healthy(
        "LightGBM on the CPU",
        STACK,
        of("lightgbm scikit-learn"),
        BOOST.format("") + "print('FINE')",
        FINE,
        "lightgbm scikit-learn",
        project=BOOST.format("") + "device = 'cuda'\n",
    ),
    healthy(
        "Matplotlib told to draw without a display",
        STACK,
        of("matplotlib", environment={"MPLBACKEND": "Agg"}),
        PLOT + "print('FINE')",
        FINE,
        "matplotlib",
        project=PLOT,
    ),
    healthy(
        "PYTHONPATH with more packages for this Python",
        STACK,
        of(
            "numpy==2.1.3",
            "--target {tree}/opt/more einops",
            environment={"PYTHONPATH": "{tree}/opt/more"},
        ),
        "import numpy, einops; print('FINE')",
        FINE,
        "numpy",
    ),
    healthy(
        "protobuf told to use its C part",
        STACK,
        of("protobuf==5.29.3", environment={PROTOBUF: "upb"}),
        f"{MESSAGE}; print('FINE')",
        FINE,
        "protobuf",
    ),
)
