"""What the demo's node process serves: `holdfast worker holdfast.demo.node`."""

from __future__ import annotations

from dataclasses import replace

from holdfast.app import Holdfast
from holdfast.config import load_config
from holdfast.demo.shop import Shop
from holdfast.dispatch.slots import FixedSlots, PerKind

# The bank takes one card at a time, so the order of the charges is the order of dispatch.
_config = load_config({})
_booking = PerKind({"charge_card": FixedSlots(1)})

app = Shop(Holdfast(config=replace(_config, node=replace(_config.node, booking=_booking)))).app
