# Runs inside the image: prints which commands it has for a module, as a JSON list.
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
print(json.dumps([name for name in names if shutil.which(name)]))
