import importlib, json, sys

backend, path = json.loads(sys.argv[1])
sys.path[:0] = path
module, _, attribute = backend.partition(":")
found = importlib.import_module(module)
for name in filter(None, attribute.split(".")):
    found = getattr(found, name)
ask = getattr(found, "get_requires_for_build_wheel", None)
print("@mark@" + json.dumps([str(text) for text in (ask({}) if ask else [])]))
