"""The site: `python -m sphinx -W -n -c docs . site`, from the root, as pages link to files beside `docs/`."""

project = "brrrtop"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
root_doc = "docs/index"
include_patterns = [
    "docs/**",
    "benchmarks/README.md",
    "benchmarks/results/*.md",
    "ADVISORIES.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
]
html_theme = "furo"
html_title = "brrrtop"
html_copy_source = False
myst_heading_anchors = 3
nitpicky = True
autodoc_member_order = "bysource"
nitpick_ignore_regex = [("py:.*", ".*")]  # types of values; names of pages and headings are checked
