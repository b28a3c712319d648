# Runs inside the image, on any Python 3, with the standard library alone.
# In place of batchspawner-singleuser: take a free port, tell it to the hub (batchspawner's API: POST
# .../batchspawner, {"port": N}) and become the command of the arguments.
import json
import os
import socket
import ssl
import sys
import urllib.parse
import urllib.request

with socket.socket() as free:
    free.bind(("", 0))
    port = free.getsockname()[1]
# of a hub with internal_ssl
context = None
if os.environ.get("JUPYTERHUB_SSL_CLIENT_CA"):
    context = ssl.create_default_context(cafile=os.environ["JUPYTERHUB_SSL_CLIENT_CA"])
    context.load_cert_chain(
        os.environ["JUPYTERHUB_SSL_CERTFILE"], os.environ["JUPYTERHUB_SSL_KEYFILE"]
    )
request = urllib.request.Request(
    os.environ["JUPYTERHUB_API_URL"].rstrip("/") + "/batchspawner",
    data=json.dumps({"port": port}).encode(),
    headers={
        "Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"],
        "Content-Type": "application/json",
    },
)
urllib.request.urlopen(request, timeout=60, context=context).close()
words = sys.argv[1:]
service = os.environ.get("JUPYTERHUB_SERVICE_URL")
if service:
    url = urllib.parse.urlparse(service)
    url = url._replace(netloc="{}:{}".format(url.hostname, port))
    os.environ["JUPYTERHUB_SERVICE_URL"] = urllib.parse.urlunparse(url)
else:
    words.append("--port={}".format(port))
os.execvp(words[0], words)
