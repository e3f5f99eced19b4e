"""Sphinx configuration. The build executes the vignettes and needs no network."""

import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import rate_tables
import registry_pages

import dpstats

project = "dpstats"
author = "The dpstats developers"
copyright = "2026, The dpstats developers"
version = release = dpstats.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "_generated"]
nitpicky = False

# Vignettes live at the top of the repository; Sphinx reads only below its own source.
VIGNETTES = HERE / "vignettes"
shutil.rmtree(VIGNETTES, ignore_errors=True)
shutil.copytree(HERE.parent / "vignettes", VIGNETTES)

registry_pages.write(HERE / "_generated")
rate_tables.write(HERE / "_generated")

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Always executed: a cache would not notice that the package changed.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # numpydoc's sections state types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"dpstats {release}"
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system has it
html_theme_options = {
    "navigation_depth": 2,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
}
html_sidebars = {"index": [], "changelog": []}
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
html_show_sourcelink = False
