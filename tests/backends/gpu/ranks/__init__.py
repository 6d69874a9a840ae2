"""Tests of NCCL between the GPUs of several ranks."""
