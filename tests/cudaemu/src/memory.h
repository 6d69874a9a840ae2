// Device memory: one reserved range of addresses, in which every allocation ends at an unmapped page.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

struct AccessHistory;

struct Allocation {
    char *base;
    size_t bytes;
    size_t mapped;                         // whole pages, of device memory only
    void *context;                         // the owner
    bool host;                             // pinned host memory, which kernels may use too
    unsigned char *initialised = nullptr;  // one for each byte
    AccessHistory *history = nullptr;      // one for each word, made when a checked kernel first touches it
};

enum class MemoryError { none, invalid, out_of_memory };

// By address. Guarded by the lock of the driver; kernels only read it.
std::map<uintptr_t, Allocation> &allocations();
Allocation *find_allocation(uintptr_t address);
// The allocation that begins at or before an address, inside it or not.
Allocation *nearest_allocation(uintptr_t address);
bool in_device_range(const void *address);

size_t total_memory();
size_t free_memory();
// After so many allocations, all fail as if memory had run out; negative: none does.
void plan_allocation_failures(int after);

MemoryError allocate_device(uintptr_t *address, size_t bytes, void *context);
// `damage` says what was written outside the allocation, if anything was.
MemoryError free_device(uintptr_t address, std::string *damage);
void set_initialised(uintptr_t address, size_t bytes, bool value);
// Copies know whether what they copy was initialised.
void copy_initialised(uintptr_t to, uintptr_t from, size_t bytes);
// What a kernel wrote outside the allocations that its arguments point to; empty if nothing.
std::string damage_around(const char *arguments, size_t bytes);
