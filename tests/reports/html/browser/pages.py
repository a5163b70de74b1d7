"""The pages that every look at the whole report goes through: one of each template, in each of its states."""

PAGES = (
    "index.html",
    "nocaps.html",
    "costs.html",
    "trade-offs.html",
    "curves.html",
    "gallery.html",
    "gallery-2.html",
    "gallery-attention.html",
    "models.html",
    "models/expansionnet_v2.html",
    "models/aoanet.html",
    "method.html",
    "runs/expansionnet_v2-s1-plain.html",
    "runs/aoanet-s1-plain.html",
)
