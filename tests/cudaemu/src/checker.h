// The memory checker: every access of a kernel compiled with -fsanitize=thread comes here instead of to that runtime.
//
// It finds accesses out of bounds, misaligned ones, reads of what nobody wrote, and races: two accesses to one word,
// one of them a write and not both atomic, by threads between which no barrier or warp operation stands.
#pragma once
#include <cstddef>
#include <cstdint>

#include "block.h"

// The last write and the last read of four bytes.
struct Access {
    uint64_t block;  // its serial number; 0: none
    uint16_t thread, warp_epoch;
    uint32_t barrier_epoch : 24, bytes : 4, atomic : 1, several_threads : 1, several_warps : 1;
    void *code;
};

struct AccessHistory {
    Access write, read;
};

// Of the history of so many bytes of memory.
inline size_t history_bytes(size_t bytes) { return (bytes + 7) / 4 * sizeof(AccessHistory); }

void start_checked_launch();
// Gives the block its serial number.
void start_checked_block(BlockRunner *runner);
struct AccessKind {
    bool write, atomic, aligned, coherent;
};
void check_access(const void *address, unsigned bytes, AccessKind kind, void *code);
