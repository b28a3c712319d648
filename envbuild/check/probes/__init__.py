"""Scripts that run inside images (Python 3.6 to 3.14, standard library only).

None is named like what it probes.
"""
