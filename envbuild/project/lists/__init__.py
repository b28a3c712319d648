"""Lists of Python requirements: declared ones, requirements.txt, setup.py, dumps of pip."""
