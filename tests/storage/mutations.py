"""Ways to harm a saved model, each drawn from a seeded generator.

A mutation either leaves the signatures as they are, or makes them right again (`Box.sign`), as someone would who means
harm: then what is behind the checksums is put to the test.
"""

from storage import harm_files  # isort: skip  (a case is drawn from the list in this order)
from storage import harm_manifest  # isort: skip
from storage import harm_contents  # isort: skip
from storage.box import MANIFEST, MUTATIONS, Box

__all__ = ["MANIFEST", "MUTATIONS", "Box", "harm_contents", "harm_files", "harm_manifest"]
