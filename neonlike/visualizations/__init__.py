"""Visualization of callback records as data, figures and pages."""
