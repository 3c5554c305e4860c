"""What the demo's node process serves: `holdfast worker holdfast.demo.node`."""

from __future__ import annotations

from holdfast.app import Holdfast
from holdfast.demo.shop import Shop

app = Shop(Holdfast()).app
