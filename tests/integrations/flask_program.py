"""A Flask program in a process of its own: `python flask_program.py URL`."""

from __future__ import annotations

import os
import sys
import threading
import time

from flask import Flask, current_app

from holdfast import Holdfast
from holdfast.integrations.flask import init_app

holdfast = Holdfast(sys.argv[1])
shop = Flask("shop")
began = threading.Event()


@holdfast.task
def slow() -> None:
    began.set()
    time.sleep(0.3)
    os.write(1, f"finished in {current_app.name}\n".encode())


@shop.post("/slow")
def start_slow() -> str:
    slow.enqueue_sync()
    return "ok"


init_app(shop, holdfast, node=True)
shop.test_client().post("/slow")
began.wait(10)
# And now the process just ends.
