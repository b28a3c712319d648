"""A fourth blind round, put down from users' threads that were read before; no tree was tried before all were written.

Half of them (``FIRST``) were judged by the code as it was, the other half only after what these showed was mended.
Two were taken out again: node-semver no longer has the files of semver, and Matplotlib told to open windows fails only
where it draws.
"""

from __future__ import annotations

from tests.sick.real.cases import Case, healthy, of, sick
from tests.sick.real.more_cases import FINE
from tests.sick.real.sight_cases import IMPORTS

FIRST = "fourth-a"
SECOND = "fourth-b"
ANY = ".*"
PLATFORM = "import openmm\nplatform = openmm.Platform.getPlatformByName('{}')\n"
READ_MAP = "import geopandas as gpd\nframe = gpd.read_file('a.geojson')\n"
EMPTY_MAP = (
    "import pathlib; pathlib.Path('a.geojson').write_text("
    '\'{"type": "FeatureCollection", "features": [{"type": "Feature", "properties": {}, '
    '"geometry": {"type": "Point", "coordinates": [1, 2]}}]}\')\n'
)
SLIDE = "import openslide\nslide = openslide.OpenSlide('a.svs')\n"
VIDEO = (
    "import imageio\nimport numpy as np\nframes = [np.zeros((16, 16, 3), 'uint8')] * 3\n"
    "imageio.mimsave('a.mp4', frames, fps=30)\n"
)
ALPHABET = "from Bio.Alphabet import IUPAC\n"
NVITOP = "from nvitop import Device\ndevices = Device.all()\n"
KERNEL = (
    "from numba import cuda\n\n\n@cuda.jit\ndef add(x, y):\n    i = cuda.grid(1)\n"
    "    if i < x.size:\n        y[i] += x[i]\n\n\nadd[1, 32](x, y)\n"
)
PIPELINE = "import spacy\nnlp = spacy.load('en_core_web_sm')\n"
FRAMES = "import dask.dataframe as dd\nframe = dd.read_csv('a.csv')\n"
HOVER = "from bokeh.models import HoverTool, Legend\n"
EPSG = "from rasterio.crs import CRS\ncrs = CRS.from_epsg(4326)\n"
DRAW_GRAPH = "import graphviz\ngraph = graphviz.Digraph()\ngraph.node('a')\ngraph.render('a')\n"
MARKDOWN = "import pandas as pd\nframe = pd.DataFrame({'a': [1]})\nprint(frame.to_markdown())\n"
CONFIG = "from omegaconf import OmegaConf\nconfig = OmegaConf.create({'a': 1})\n"
IMAGE = "import cv2\nimage = cv2.imread('a.png')\n"
NVML = "import pynvml\npynvml.nvmlInit()\n"

FOURTH_SICK: tuple[Case, ...] = (
    sick(
        "OpenMM asked for CUDA, without its plug-in",
        FIRST,
        of("openmm==8.2.0 numpy<2"),
        PLATFORM.format("CUDA"),
        r"no registered Platform",
        "openmm",
        ANY,
        r"OpenMM.*CUDA|CUDA.*OpenMM",
        hint=r"openmm\[cuda|(?i:openmm-cuda)",
        project=PLATFORM.format("CUDA"),
        source="openmm/openmm#4370",
    ),
    sick(
        "geopandas 0.14.2 with fiona 1.10",
        FIRST,
        of("geopandas==0.14.2 fiona==1.10.1 numpy<2 pandas<2.3"),
        EMPTY_MAP + READ_MAP,
        r"has no attribute 'path'",
        "geopandas",
        ANY,
        r"fiona",
        hint="geopandas|fiona<1.10",
        project=READ_MAP,
        source="Toblerity/Fiona#1440",
    ),
    sick(
        "openslide-python without OpenSlide",
        FIRST,
        of("openslide-python==1.4.1"),
        "import openslide",
        r"OpenSlide|openslide",
        "openslide-python",
        IMPORTS,
        r"[Oo]pen[Ss]lide",
        hint="openslide-bin|libopenslide",
        project=SLIDE,
        source="openslide/openslide-python#35",
    ),
    sick(
        "imageio writes a video without FFmpeg",
        FIRST,
        of("imageio==2.36.1 numpy<2"),
        VIDEO,
        r"Could not find a backend",
        "imageio numpy",
        ANY,
        r"imageio.*(ffmpeg|pyav|video)",
        hint=r"imageio-ffmpeg|imageio\[|\"av\"",
        project=VIDEO,
        source="guoyww/AnimateDiff#119",
    ),
    sick(
        "Biopython has no Alphabet",
        FIRST,
        of("biopython==1.83 numpy<2"),
        ALPHABET,
        r"has been removed from Biopython",
        "biopython",
        "project-imports",
        r"Bio\.Alphabet",
        hint="biopython|change that line",
        project=ALPHABET,
        source="iprada/Circle-Map#87",
    ),
    sick(
        "nvidia-ml-py3 over nvidia-ml-py, under nvitop",
        FIRST,
        of("nvitop==1.3.2 setuptools<81", "nvidia-ml-py3==7.352.0"),
        "import nvitop",
        r"Error",
        "nvitop nvidia-ml-py3",
        ANY,
        r"nvidia-ml-py3|nvitop",
        hint="nvidia-ml-py",
        project=NVITOP,
        source="XuehaiPan/nvitop#44",
    ),
    sick(
        "Numba's CUDA without NVVM",
        SECOND,
        of("numba==0.60.0 numpy<2.1"),
        "from numba.cuda.cudadrv.nvvm import NVVM; NVVM()",
        r"libNVVM cannot be found",
        "numba",
        ANY,
        r"(?i:nvvm)",
        hint=r"numba-cuda|devel|nvcc",
        project=KERNEL,
        source="numba/numba#9216",
    ),
    sick(
        "spaCy loads a model that is not there",
        SECOND,
        of("spacy==3.8.7 numpy<2.3 click"),
        PIPELINE,
        r"E050",
        "spacy",
        ANY,
        r"en_core_web_sm",
        hint="en_core_web_sm",
        project=PIPELINE,
        source="explosion/spaCy#6237",
    ),
    sick(
        "dask.dataframe without what it needs",
        SECOND,
        of("dask==2024.8.0"),
        "import dask.dataframe",
        r"requirements are not installed",
        "dask",
        IMPORTS,
        r"dask\.dataframe",
        hint=r"dask\[",
        project=FRAMES,
        source="dask/dask#3899",
    ),
    sick(
        "bokeh 2.4 under NumPy 2",
        SECOND,
        of("bokeh==2.4.3 numpy==2.0.2"),
        "import bokeh.models",
        r"bool8",
        "bokeh",
        IMPORTS,
        r"bool8",
        hint="bokeh|numpy<2",
        project=HOVER,
        source="ukri-excalibur/excalibur-tests#334",
    ),
    sick(
        "PROJ_LIB of another PROJ",
        SECOND,
        of(
            "pyproj==3.4.0 rasterio==1.4.3 numpy<2.3",
            copy={"pyproj/proj_dir/share/proj/*": "usr/share/proj"},
            environment={"PROJ_LIB": "{tree}/usr/share/proj"},
        ),
        EPSG,
        r"DATABASE\.LAYOUT|EPSG|proj",
        "rasterio",
        ANY,
        r"PROJ_LIB",
        hint="PROJ_LIB",
        project=EPSG,
        source="openforis/sepal#381",
    ),
    sick(
        "graphviz without dot",
        SECOND,
        of("graphviz==0.20.3"),
        DRAW_GRAPH,
        r"ExecutableNotFound",
        "graphviz",
        ANY,
        r"\bdot\b",
        hint=r"\"graphviz\" to \[system\]|\[system\] packages",
        project=DRAW_GRAPH,
        source="LeoVerto/docker-network-graph#20",
    ),
    sick(
        "pandas writes Markdown without tabulate",
        SECOND,
        of("pandas==2.2.3 numpy<2"),
        MARKDOWN,
        r"tabulate",
        "pandas",
        ANY,
        r"tabulate",
        hint="tabulate",
        project=MARKDOWN,
        source="lisphilar/covid19-sir#226",
    ),
    sick(
        "omegaconf with ANTLR 4.13",
        SECOND,
        of("--no-deps omegaconf==2.3.0", "pyyaml antlr4-python3-runtime==4.13.2"),
        CONFIG,
        r"deserialize ATN|Error",
        "omegaconf",
        f"{IMPORTS}|companions",
        r"omegaconf|ATN",
        hint=r"antlr4-python3-runtime==4\.9",
        project=CONFIG,
        source="omry/omegaconf#1000",
    ),
)

FOURTH_HEALTHY: tuple[Case, ...] = (
    healthy(
        "opencv-python, and headless of the same release",
        FIRST,
        of("opencv-python==4.12.0.88 numpy<2.3", "opencv-python-headless==4.12.0.88 numpy<2.3"),
        "import cv2, numpy; cv2.imencode('.png', numpy.zeros((8, 8, 3), 'uint8')); print('FINE')",
        FINE,
        "opencv-python opencv-python-headless",
        project=IMAGE,
        source="albumentations-team/AlbumentationsX#124",
    ),
    healthy(
        "pynvml 12 beside nvidia-ml-py",
        FIRST,
        of("pynvml==12.0.0"),
        "import pynvml; pynvml.nvmlInit; print('FINE')",
        FINE,
        "pynvml",
        project=NVML,
        source="rapidsai/ucxx#434",
    ),
    healthy(
        "OpenMM on the CPU",
        FIRST,
        of("openmm==8.2.0 numpy<2"),
        f"{PLATFORM.format('CPU')}print(platform.getName(), 'FINE')",
        "CPU FINE",
        "openmm",
        project=PLATFORM.format("CPU"),
        source="openmm/openmm#2808",
    ),
    healthy(
        "one of two backports uninstalled",
        FIRST,
        of(
            "backports.functools-lru-cache==1.6.4 backports.csv==1.0.7",
            remove=("backports.csv",),
        ),
        "from backports.functools_lru_cache import lru_cache; print('FINE')",
        FINE,
        "backports.functools-lru-cache",
        project="from backports.functools_lru_cache import lru_cache\n",
        source="pypa/pip#9732",
    ),
    healthy(
        "imageio writes a video with FFmpeg",
        FIRST,
        of("imageio==2.36.1 imageio-ffmpeg numpy<2"),
        f"{VIDEO}print('FINE')",
        FINE,
        "imageio imageio-ffmpeg",
        project=VIDEO,
        source="imageio/imageio#925",
    ),
    healthy(
        "geopandas 1 with pyogrio",
        FIRST,
        of("geopandas==1.0.1 numpy<2.3 pandas<2.3"),
        f"{EMPTY_MAP}{READ_MAP}print(len(frame), 'FINE')",
        "1 FINE",
        "geopandas",
        project=READ_MAP,
        source="databrickslabs/mosaic#594",
    ),
    healthy(
        "Numba on the CPU",
        SECOND,
        of("numba==0.60.0 numpy<2.1"),
        "import numba; print(numba.njit(lambda x: x + 1)(1), 'FINE')",
        "2 FINE",
        "numba",
        project="from numba import njit\n\n\n@njit\ndef add(x, y):\n    return x + y\n",
    ),
    healthy(
        "spaCy's blank pipeline",
        SECOND,
        of("spacy==3.8.7 numpy<2.3 click"),
        "import spacy; spacy.blank('en')('two words'); print('FINE')",
        FINE,
        "spacy",
        project="import spacy\nnlp = spacy.blank('en')\n",
    ),
    healthy(
        "dask.array without data frames",
        SECOND,
        of("dask==2024.8.0 numpy<2"),
        "import dask.array as da; da.ones(3).sum().compute(); print('FINE')",
        FINE,
        "dask numpy",
        project="import dask.array as da\ntotal = da.ones(3).sum().compute()\n",
        source="dask/dask#3195",
    ),
    healthy(
        "openslide-python with openslide-bin",
        SECOND,
        of("openslide-python==1.4.1 openslide-bin"),
        "import openslide; print('FINE')",
        FINE,
        "openslide-python openslide-bin",
        project=SLIDE,
    ),
    healthy(
        "Matplotlib that opens windows where there is a display",
        SECOND,
        of("matplotlib==3.9.4 numpy<2"),
        "import matplotlib.pyplot; print('FINE')",
        FINE,
        "matplotlib",
        project="import os\nimport matplotlib\nif os.environ.get('DISPLAY'):\n    matplotlib.use('TkAgg')\n"
        "import matplotlib.pyplot as plt\n",
        source="btobers/RAGU#3",
    ),
    healthy(
        "graphviz that writes text only",
        SECOND,
        of("graphviz==0.20.3"),
        "import graphviz; print(graphviz.Digraph().source, 'FINE')",
        FINE,
        "graphviz",
        project="import graphviz\ngraph = graphviz.Digraph()\ngraph.save('a.gv')\n",
    ),
    healthy(
        "pandas that tries to write Markdown",
        SECOND,
        of("pandas==2.2.3 numpy<2"),
        "import pandas; print('FINE')",
        FINE,
        "pandas",
        project="import pandas as pd\nframe = pd.DataFrame({'a': [1]})\ntry:\n    print(frame.to_markdown())\n"
        "except ImportError:\n    print(frame)\n",
        source="pandas-dev/pandas#36938",
    ),
    healthy(
        "opencv-python over headless of the same release",
        SECOND,
        of("opencv-python-headless==4.12.0.88 numpy<2.3", "opencv-python==4.12.0.88 numpy<2.3"),
        "import cv2, numpy; cv2.imencode('.png', numpy.zeros((8, 8, 3), 'uint8')); print('FINE')",
        FINE,
        "opencv-python opencv-python-headless",
        project=IMAGE,
        source="roboflow/supervision#351",
    ),
)
