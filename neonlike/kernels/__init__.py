"""The compiler: expression -> key -> plan -> stages, and the engines that run them."""
