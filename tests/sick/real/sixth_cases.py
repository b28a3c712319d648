# ruff: noqa: PLR0917
"""A sixth blind round, put down from users' threads that were read before; no tree was tried before all were written."""

from __future__ import annotations

from dataclasses import replace

from tests.sick.real.cases import Case, healthy, of
from tests.sick.real.fifth_cases import PANDAS, SKLEARN, broken
from tests.sick.real.more_cases import FINE

STACK = "sixth"
FRAME = "import pandas as pd\nframe = pd.DataFrame({'a': [1]})\n"
APPEND = f"{FRAME}other = frame.append({{'a': 2}}, ignore_index=True)\n"
GRAPH = "import networkx as nx\ngraph = nx.Graph()\ngraph.add_node(1)\n"
NODES = f"{GRAPH}for node in graph.nodes_iter():\n    print(node)\n"
GROUPS = "from sklearn.cluster import AgglomerativeClustering\ngroups = AgglomerativeClustering(n_clusters=2, {}='euclidean')\n"
FONT = "from PIL import ImageFont\nfont = ImageFont.load_default()\nprint(font.getsize('a'))\n"
DRAW = (
    "from PIL import Image, ImageDraw\n\n\ndef main():\n    image = Image.new('RGB', (9, 9))\n"
    "    draw = ImageDraw.Draw(image)\n    print(draw.{}('a'))\n\n\nif __name__ == '__main__':\n    main()\n"
)
SMALL = "import numpy as np\nfrom skimage.transform import rescale\nsmall = rescale(np.zeros((8, 8)), 0.5, multichannel=False)\n"
BOOST = (
    "import xgboost\nmodel = xgboost.XGBClassifier({})\n"
    "model.fit([[0], [1], [0], [1]], [0, 1, 0, 1], eval_set=[([[0]], [0])]{})\n"
)
LIGHT = (
    "import lightgbm as lgb\nimport numpy as np\n"
    "data = lgb.Dataset(np.zeros((4, 1)), label=[0, 1, 0, 1])\nmodel = lgb.train({{'verbose': -1}}, data, {})\n"
)
AUDIO = "import librosa\nimport numpy as np\nslow = librosa.resample(np.zeros(4096), {})\n"
CANVAS = (
    "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\n"
    "figure = plt.figure()\nfigure.canvas.{}('a')\n"
)
POLE = "import gymnasium as gym\n\nenv = gym.make('CartPole-v1')\nenv.{}\n"
TWEETS = (
    "import tweepy\n\nkeys = tweepy.OAuth1UserHandler('a', 'b', 'c', 'd')\n"
    "api = tweepy.API(keys, wait_on_rate_limit=True{})\n"
)
DASH = "from dash import Dash, html\n\napp = Dash('a')\napp.layout = html.Div('a')\n"
CHAT = "import openai\n\nanswer = openai.ChatCompletion.create(model='a', messages=[])\n"
AUDIO_TREE = "librosa==0.10.2 numpy<2 setuptools<81"
BOOST_TREE = f"xgboost-cpu==2.1.4 {SKLEARN}"


def gone(name: str, tree: str, code: str, says: str, words: str, source: str) -> Case:
    """Return a tree without what the project asks for; the hint names the package or the line."""
    package = tree.split("=", maxsplit=1)[0]
    found = broken(name, tree, code, says, words, f"{package}|change that line", source)
    return replace(found, stack=STACK)


def sound(name: str, tree: str, code: str) -> Case:
    direct = " ".join(one.partition("=")[0].partition("<")[0] for one in tree.split())
    return healthy(name, STACK, of(tree), f"{code}\nprint('FINE')", FINE, direct, project=code)


SIXTH_SICK: tuple[Case, ...] = (
    gone(
        "append of a frame",
        PANDAS,
        APPEND,
        "has no attribute",
        r"\bappend",
        "rafatieppo/lucylattes#9",
    ),
    gone(
        "bad lines of a table",
        PANDAS,
        "import pandas as pd\n\n\ndef load(path):\n    return pd.read_csv(path, sep='\\t', error_bad_lines=False)\n\n\n"
        "table = load('a.csv')\n",
        "unexpected keyword",
        "error_bad_lines",
        "qukequke/bert-crf-token_classification_ner#5",
    ),
    gone(
        "ends of lines of a table",
        PANDAS,
        f"{FRAME}frame.to_csv('a.csv', line_terminator='\\n')\n",
        "unexpected keyword",
        "line_terminator",
        "insightindustry/spss-converter#13",
    ),
    gone(
        "affinity of groups",
        SKLEARN,
        GROUPS.format("affinity"),
        "unexpected keyword",
        "affinity",
        "zengxiaofei/HapHiC#23",
    ),
    gone(
        "normalize of a regression",
        SKLEARN,
        "from sklearn.linear_model import LinearRegression\n\nif __name__ == '__main__':\n"
        "    model = LinearRegression(normalize=True)\n    model.fit([[0], [1]], [0, 1])\n",
        "unexpected keyword",
        "normalize",
        "dynamicslab/pysindy#506",
    ),
    gone(
        "size of a font",
        "pillow==11.0.0",
        FONT,
        "has no attribute",
        "getsize",
        "avocado-framework/avocado-vt#3748",
    ),
    gone(
        "size of a drawn text",
        "pillow==11.0.0",
        DRAW.format("textsize"),
        "has no attribute",
        "textsize",
        "python-pillow/Pillow#7523",
    ),
    gone(
        "nodes_iter of a graph",
        "networkx==3.2.1 numpy<2",
        NODES,
        "has no attribute",
        "nodes_iter",
        "priba/nmp_qc#4",
    ),
    gone(
        "node of a graph",
        "networkx==3.2.1 numpy<2",
        f"{GRAPH}print(graph.node[1])\n",
        "has no attribute",
        r"\bnode\b",
        "akelleh/causality#82",
    ),
    gone(
        "multichannel of an image",
        "scikit-image==0.24.0 numpy<2",
        SMALL,
        "unexpected keyword",
        "multichannel",
        "ocampor/image-quality#50",
    ),
    gone(
        "early stopping of fit",
        BOOST_TREE,
        BOOST.format("", ", early_stopping_rounds=5"),
        "unexpected keyword",
        "early_stopping_rounds",
        "erdogant/hgboost#21",
    ),
    gone(
        "verbose_eval of LightGBM",
        "lightgbm==4.5.0 numpy<2",
        LIGHT.format("verbose_eval=10"),
        "unexpected keyword",
        "verbose_eval",
        "4paradigm/AutoX#70",
    ),
    gone(
        "resample by position",
        AUDIO_TREE,
        AUDIO.format("22050, 11025"),
        "positional argument",
        "resample",
        "librosa/librosa#1696",
    ),
    gone(
        "title of a canvas",
        "matplotlib==3.9.2 numpy<2",
        CANVAS.format("set_window_title"),
        "has no attribute",
        "set_window_title",
        "Udayraj123/OMRChecker#55",
    ),
    gone(
        "seed of an environment",
        "gymnasium==1.0.0 numpy<2",
        POLE.format("seed(1)"),
        "has no attribute",
        r"\bseed\b",
        "Grid2op/l2rpn-baselines#67",
    ),
    gone(
        "rate limits of tweepy",
        "tweepy==4.14.0",
        TWEETS.format(", wait_on_rate_limit_notify=True"),
        "unexpected keyword",
        "wait_on_rate_limit_notify",
        "Spark-NF/twitter_media_downloader#27",
    ),
    gone(
        "run_server of Dash",
        "dash==3.0.2",
        f"{DASH}\nif __name__ == '__main__':\n    app.run_server(debug=True)\n",
        "has been replaced",
        "run_server",
        "imohitmayank/jaal#70",
    ),
    gone(
        "chats of an older openai",
        "openai==1.55.3 httpx<0.28",
        CHAT,
        "no longer supported",
        "ChatCompletion",
        "pncnmnp/grammatical#2",
    ),
    gone(
        "evaluation_strategy",
        "transformers==4.51.3 numpy<2",
        "from transformers import TrainingArguments\n\narguments = TrainingArguments(output_dir='out', evaluation_strategy='epoch')\n",
        "unexpected keyword",
        "evaluation_strategy",
        "yeyupiaoling/Whisper-Finetune#112",
    ),
)

SIXTH_HEALTHY: tuple[Case, ...] = (
    sound("append of an older frame", "pandas==1.5.3 numpy<2", APPEND),
    sound(
        "a frame with what tqdm adds",
        f"tqdm {PANDAS}",
        f"from tqdm import tqdm\n\ntqdm.pandas()\n{FRAME}print(frame.progress_apply(sum), frame.a.mean())\n",
    ),
    sound(
        "affinity by release",
        SKLEARN,
        "import sklearn\nfrom sklearn.cluster import AgglomerativeClustering\nfrom sklearn.utils.fixes import parse_version\n\n\n"
        "def make():\n    if parse_version(sklearn.__version__) > parse_version('1.2'):\n"
        "        return AgglomerativeClustering(metric='euclidean')\n"
        "    return AgglomerativeClustering(affinity='euclidean')\n\n\ngroups = make()\n",
    ),
    sound(
        "size of a font, where it has one",
        "pillow==11.0.0",
        FONT.replace(
            "print(font.getsize('a'))",
            "size = font.getsize('a') if hasattr(font, 'getsize') else font.getbbox('a')",
        ),
    ),
    sound("box of a drawn text", "pillow==11.0.0", DRAW.format("textlength")),
    sound("multichannel of an older image", "scikit-image==0.19.3 numpy<1.24", SMALL),
    sound(
        "resample by name",
        AUDIO_TREE,
        AUDIO.format("orig_sr=22050, target_sr=11025, res_type='fft'"),
    ),
    sound(
        "resample by position, an older librosa",
        "librosa==0.9.2 numpy<1.24 setuptools<81 numba<0.58",
        AUDIO.format("22050, 11025, res_type='fft'"),
    ),
    sound(
        "early stopping of the constructor",
        BOOST_TREE,
        BOOST.format("early_stopping_rounds=5, n_estimators=2", ", verbose=False"),
    ),
    sound(
        "a client of openai",
        "openai==1.55.3 httpx<0.28",
        "import openai\n\nclient = openai.OpenAI(api_key='a', max_retries=1)\nprint(client.chat.completions.create)\n",
    ),
    sound(
        "a graph of the project",
        "networkx==3.2.1 numpy<2",
        NODES.replace(
            "graph = nx.Graph()",
            "\n\nclass Net(nx.Graph):\n    def nodes_iter(self):\n        return iter(self.nodes)\n\n\ngraph = Net()",
        ),
    ),
    sound(
        "a method that the project adds",
        "networkx==3.2.1 numpy<2",
        NODES.replace("graph = ", "nx.Graph.nodes_iter = lambda self: iter(self.nodes)\ngraph = "),
    ),
    sound(
        "a function that the project replaces",
        "networkx==3.2.1 numpy<2",
        f"{GRAPH}\n\ndef shorter(graph, deep):\n    return deep\n\n\nnx.density = shorter\nprint(nx.density(graph, deep=True))\n",
    ),
    sound(
        "title of a manager",
        "matplotlib==3.9.2 numpy<2",
        CANVAS.format("manager.set_window_title"),
    ),
    sound("reset of an environment", "gymnasium==1.0.0 numpy<2", POLE.format("reset(seed=1)")),
    sound("callbacks of LightGBM", "lightgbm==4.5.0 numpy<2", LIGHT.format("num_boost_round=2")),
    sound(
        "an encoder, tried both ways",
        SKLEARN,
        "from sklearn.preprocessing import OneHotEncoder\n\ntry:\n    encoder = OneHotEncoder(sparse=False)\n"
        "except TypeError:\n    encoder = OneHotEncoder(sparse_output=False)\nencoder.fit([[1]])\n",
    ),
    sound(
        "settings with what nobody declares",
        "easydict==1.13 omegaconf==2.3.0",
        "from easydict import EasyDict\nfrom omegaconf import OmegaConf\n\nsettings = EasyDict({'rate': 1})\n"
        "settings.deep = EasyDict()\nsettings.deep.rate = 2\nother = OmegaConf.create({'rate': 3})\n"
        "print(settings.rate, settings.deep.rate, other.rate)\n",
    ),
    sound(
        "an area by release",
        "numpy==1.26.4",
        "import numpy as np\n\n\ndef area(values):\n    if int(np.__version__.split('.')[0]) < 2:\n"
        "        return np.trapz(values)\n    return np.trapezoid(values)\n\n\nprint(area([1.0, 2.0]))\n",
    ),
)
