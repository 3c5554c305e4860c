"""The program of the renewer's process; what it does is told in `holdfast.node.renewing`.

It is started by its path.  The packages are bare here, without the imports of their `__init__`:
those would bring in the whole engine, for a process that only ever writes one row.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

PACKAGES = ("holdfast", "holdfast.stores", "holdfast.stores.sqlite", "holdfast.stores.postgres")


def main(root: Path) -> None:
    for name in PACKAGES:
        folder = root.joinpath(*name.split("."))
        spec = spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        assert spec is not None
        sys.modules[name] = module_from_spec(spec)  # and is not executed
    from holdfast.node.renewing import main

    main()


if __name__ == "__main__":
    main(Path(__file__).resolve().parents[2])
