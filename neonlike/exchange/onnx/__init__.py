"""Models as ONNX graphs: :mod:`.export` writes them, :mod:`.importing` reads them; a table a family of layers."""
