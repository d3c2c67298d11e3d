"""Sphinx's configuration of the site. Anything that it warns about fails the build (`docs/site/__main__.py`)."""

project = "kedge"
copyright = "The kedge authors"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser"]

html_theme = "furo"
html_title = "kedge"
html_static_path = ["static"]
html_css_files = ["wide.css"]
html_show_sourcelink = False
html_copy_source = False
highlight_language = "none"
# A `--flag` stays one.
smartquotes = False

# As on GitHub, a bare https://... is a link, and no `job-file.md` is a host in Moldova.
myst_enable_extensions = ["linkify"]
myst_linkify_fuzzy_links = False
# Links to headings, with the anchors that GitHub gives them.
myst_heading_anchors = 4
nitpicky = True
