// Floats of 16 bits on the host, rounded to the nearest, ties to even.
#pragma once
#include <cstdint>
#include <cstring>

typedef _Float16 Half;

struct BFloat {
    uint16_t bits;
    BFloat() = default;
    BFloat(float value) {
        uint32_t word;
        memcpy(&word, &value, 4);
        bool nan = value != value;
        bits = nan ? 0x7fff : (word + 0x7fff + (word >> 16 & 1)) >> 16;  // to nearest, ties to even
    }
    operator float() const {
        uint32_t word = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &word, 4);
        return value;
    }
};
