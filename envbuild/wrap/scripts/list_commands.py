# Runs inside the image: prints which commands it has for a module, as a JSON list.
# Its arguments are names of Python's packages, and records of conda packages (paths).
import json
import shutil
import sys

names = ["python", "python3", "torchrun"]
try:
    from importlib.metadata import distribution
except ImportError:  # Python 3.6 and 3.7
    distribution = None
for argument in sys.argv[1:] if distribution else ():
    try:
        points = distribution(argument).entry_points
    except Exception:
        continue
    names += [point.name for point in points if point.group == "console_scripts"]
for path in (word for word in sys.argv[1:] if "/" in word):
    try:
        with open(path, encoding="utf-8") as file:
            files = json.load(file)["files"]
    except (OSError, ValueError, KeyError):
        continue
    names += [name[4:] for name in files if name.startswith("bin/") and "/" not in name[4:]]
print(json.dumps([name for name in names if shutil.which(name)]))
