"""Packages and the places where they run: wheel and sdist, versions of Python, odd folders, other systems."""
