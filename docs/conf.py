"""The site: `sphinx-build -W -c docs . site`, from the root, as pages link to files beside `docs/`."""

project = "brrrtop"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "ADVISORIES.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
html_theme = "furo"
html_title = "brrrtop"
html_copy_source = False
myst_heading_anchors = 3
nitpicky = True
