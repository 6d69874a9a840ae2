"""A compound primitive made up for the tests, a file a side, as docs/primitives.md says how to add one."""
