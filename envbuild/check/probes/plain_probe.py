"""What of the caller comes in where nothing is sealed: run with a home folder and variables full of poison.

Parameters: ``modules`` (name -> what it stands for: modules that only the poison has), ``variables`` (names that the
caller has set).
"""

answer(
    {
        "home": os.path.expanduser("~"),
        "modules": [
            name
            for name in PARAMETERS["modules"]
            if __import__("importlib.util").util.find_spec(name)
        ],
        "variables": [name for name in PARAMETERS["variables"] if os.environ.get(name)],
    }
)
