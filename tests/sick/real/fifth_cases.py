# ruff: noqa: PLR0917
"""A fifth blind round, put down from users' threads that were read before; no tree was tried before all were written."""

from __future__ import annotations

from tests.sick.real.cases import Case, healthy, of, sick
from tests.sick.real.more_cases import FINE

ANY = ".*"
STACK = "fifth"
BARS = "import seaborn as sns\naxes = sns.barplot([1, 2], [3, 4], palette='bright')\n"
MEL = "import librosa\nimport numpy as np\nmel = librosa.feature.melspectrogram(np.zeros(4096), sr=22050, n_mels=8)\n"
MATRIX = "import networkx as nx\ngraph = nx.path_graph(3)\nprint(nx.{}(graph))\n"
ENCODER = "from sklearn.preprocessing import OneHotEncoder\nencoder = OneHotEncoder({}=False, handle_unknown='ignore')\n"
WORDS = "from gensim.models import Word2Vec\nmodel = Word2Vec([['a', 'b']], {}=8, min_count=1)\n"
CLIENT = "import httpx\nclient = httpx.Client({})\n"
FIGURE = "import plotly.graph_objects as go\nfigure = go.Figure()\nfigure.{}\n"
SMOTE = (
    "from imblearn.over_sampling import SMOTE\nsmote = SMOTE(random_state=42)\nprint(smote.{})\n"
)
COUNTS = (
    "from sklearn.feature_extraction.text import CountVectorizer\ncounts = CountVectorizer()\n"
    "counts.fit(['a word'])\nnames = counts.{}()\n"
)
PARQUET = "import pandas as pd\nframe = pd.read_parquet('a.parquet')\n"
ARIMA = "from statsmodels.tsa.{} import ARIMA\nmodel = ARIMA([1.0, 2.0, 3.0], order=(1, 0, 0))\n"
ENGINE = "from sqlalchemy import create_engine\nengine = create_engine('sqlite://')\nengine.execute('select 1')\n"
FLASK = "from flask import Flask\napp = Flask('a')\n\n\n@app.{}\ndef start():\n    pass\n"
PANDAS = "pandas==2.2.3 numpy<2"
SKLEARN = "scikit-learn==1.5.2 numpy<2"


def broken(name: str, tree: str, code: str, says: str, words: str, hint: str, source: str) -> Case:
    direct = " ".join(one.partition("=")[0].partition("<")[0] for one in tree.split())
    return sick(
        name,
        STACK,
        of(tree),
        code,
        says,
        direct,
        ANY,
        words,
        hint=hint,
        project=code,
        source=source,
    )


def sound(name: str, tree: str, code: str) -> Case:
    direct = " ".join(one.partition("=")[0].partition("<")[0] for one in tree.split())
    return healthy(name, STACK, of(tree), f"{code}\nprint('FINE')", FINE, direct, project=code)


FIFTH_SICK: tuple[Case, ...] = (
    broken(
        "bars by position",
        f"seaborn==0.13.2 {PANDAS}",
        BARS,
        "positional argument",
        "barplot",
        "seaborn|change that line",
        "pdeitel/PythonForProgrammers#41",
    ),
    broken(
        "melspectrogram by position",
        "librosa==0.10.2 numpy<2 setuptools<81",
        MEL,
        "positional argument",
        "melspectrogram",
        "librosa|change that line",
        "librosa/librosa#1803",
    ),
    broken(
        "a matrix of NetworkX 3",
        "networkx==3.2.1 numpy<2",
        MATRIX.format("to_numpy_matrix"),
        "has no attribute",
        "to_numpy_matrix",
        "networkx",
        "networkx/networkx#7239",
    ),
    broken(
        "sparse of an encoder",
        SKLEARN,
        ENCODER.format("sparse"),
        "unexpected keyword",
        "sparse",
        "scikit-learn|change that line",
        "ealcobaca/pymfe#134",
    ),
    broken(
        "size of word vectors",
        "gensim==4.3.3 numpy<2 scipy<1.13",
        WORDS.format("size"),
        "unexpected keyword",
        "size",
        "gensim|change that line",
        "churchmanlab/genewalk#46",
    ),
    broken(
        "proxies of httpx",
        "httpx==0.28.1",
        CLIENT.format("proxies=None"),
        "unexpected keyword",
        "proxies",
        "httpx|change that line",
        "ogx-ai/llama-stack-apps#131",
    ),
    broken(
        "HTTP/2 without h2",
        "httpx==0.27.2",
        CLIENT.format("http2=True"),
        "h2",
        r"\bh2\b",
        r"h2|httpx\[http2",
        "encode/httpx#1443",
    ),
    broken(
        "an image of Plotly",
        "plotly==5.24.1",
        FIGURE.format("write_image('a.png')"),
        "kaleido",
        "kaleido",
        "kaleido",
        "plotly/Kaleido#131",
    ),
    broken(
        "fit_sample of SMOTE",
        f"imbalanced-learn==0.12.4 {SKLEARN}",
        SMOTE.format("fit_sample([[1]], [1])"),
        "has no attribute",
        "fit_sample",
        "imbalanced-learn|change that line",
        "scikit-learn-contrib/imbalanced-learn#826",
    ),
    broken(
        "feature names of a vectorizer",
        SKLEARN,
        COUNTS.format("get_feature_names"),
        "has no attribute",
        "get_feature_names",
        "scikit-learn|change that line",
        "Zeta-and-Company/pydistinto#7",
    ),
    broken(
        "Parquet without an engine",
        PANDAS,
        PARQUET,
        "Unable to find a usable engine",
        "pyarrow",
        "pyarrow",
        "zhenglinpan/SakugaDataset#1",
    ),
    broken(
        "ARIMA that was removed",
        f"statsmodels==0.14.4 {PANDAS} scipy<1.15",
        ARIMA.format("arima_model"),
        "removed",
        "ARIMA|arima_model",
        "statsmodels|change that line",
        "microsoft/WhatTheHack#320",
    ),
    broken(
        "execute of an engine",
        "sqlalchemy==2.0.36",
        ENGINE,
        "has no attribute",
        "execute",
        "sqlalchemy|change that line",
        "sqlalchemy/sqlalchemy#9161",
    ),
    broken(
        "before_first_request of Flask",
        "flask==3.0.3",
        FLASK.format("before_first_request"),
        "has no attribute",
        "before_first_request",
        "flask|change that line",
        "authlib/example-oauth2-server#95",
    ),
)

FIFTH_HEALTHY: tuple[Case, ...] = (
    sound(
        "bars by name",
        f"seaborn==0.13.2 {PANDAS}",
        BARS.replace("[1, 2], [3", "x=[1, 2], y=[3").replace(", palette='bright'", ""),
    ),
    sound("an array of NetworkX 3", "networkx==3.2.1 numpy<2", MATRIX.format("to_numpy_array")),
    sound("sparse_output of an encoder", SKLEARN, ENCODER.format("sparse_output")),
    sound(
        "vector_size of word vectors",
        "gensim==4.3.3 numpy<2 scipy<1.13",
        WORDS.format("vector_size"),
    ),
    sound("proxies of an older httpx", "httpx==0.27.2", CLIENT.format("proxies=None")),
    sound("HTTP/2 with h2", "httpx==0.27.2 h2", CLIENT.format("http2=True")),
    sound("a page of Plotly", "plotly==5.24.1", FIGURE.format("write_html('a.html')")),
    sound(
        "fit_resample of SMOTE", f"imbalanced-learn==0.12.4 {SKLEARN}", SMOTE.format("fit_resample")
    ),
    sound(
        "feature names of an older vectorizer",
        "scikit-learn==1.1.3 numpy<1.24",
        COUNTS.format("get_feature_names"),
    ),
    sound("a new ARIMA", f"statsmodels==0.14.4 {PANDAS} scipy<1.15", ARIMA.format("arima.model")),
    sound("execute of an older engine", "sqlalchemy==1.4.54", ENGINE),
    sound("before_request of Flask", "flask==3.0.3", FLASK.format("before_request")),
)
