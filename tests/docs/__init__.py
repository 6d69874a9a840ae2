"""Tests of the builder of the documentation site, docs/sitebuilder."""
