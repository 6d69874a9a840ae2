"""Tensors that go from GPU to GPU between the ranks of a program, through NCCL."""
