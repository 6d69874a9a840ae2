// The environment variables CUEMU_*; README.md says what each does. Read at each use, so that a program can change
// them.
#pragma once
#include <cstdlib>
#include <cstring>

inline int option(const char *name, int otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

enum class Order { forward, reverse, random };

inline Order order_option() {
    const char *text = getenv("CUEMU_ORDER");
    if (text && !strcmp(text, "reverse")) return Order::reverse;
    return text && !strcmp(text, "random") ? Order::random : Order::forward;
}
