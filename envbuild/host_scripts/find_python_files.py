import json, os, re, sys

for name in ("bz2", "ctypes", "hashlib", "lzma", "ssl", "zlib"):
    try:
        __import__(name)
    except ImportError:
        pass
found = sorted(set(re.findall(r"(/\S*\.so\S*)$", open("/proc/self/maps").read(), re.M)))
stdlib = os.path.dirname(os.__file__)
libraries = [path for path in found if not path.startswith(stdlib)]
program = os.path.realpath("/proc/self/exe")
print(json.dumps({"program": program, "stdlib": stdlib, "libraries": libraries}))
