#include "memory.h"

#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "checker.h"
#include "options.h"

static constexpr size_t kPage = 4096;
static constexpr size_t kAlignment = 256;  // what cuMemAlloc promises
static constexpr size_t kRange = 64ull << 30;
static constexpr unsigned char kCanary = 0xCA;
static constexpr unsigned char kFill = 0xFF;  // a nan in every floating-point type

static char *range_begin, *range_next;
static size_t used;
static int failures_after = -1;
// Addresses of freed memory by size. They are used again only when the range is full: until then an access to freed
// memory faults.
static std::map<size_t, std::vector<char *>> freed;

std::map<uintptr_t, Allocation> &allocations() {
    static auto *all = new std::map<uintptr_t, Allocation>;  // outlives every static destructor
    return *all;
}

Allocation *nearest_allocation(uintptr_t address) {
    auto next = allocations().upper_bound(address);
    return next == allocations().begin() ? nullptr : &std::prev(next)->second;
}

Allocation *find_allocation(uintptr_t address) {
    Allocation *nearest = nearest_allocation(address);
    return nearest && address < (uintptr_t)nearest->base + nearest->bytes ? nearest : nullptr;
}

bool in_device_range(const void *address) {
    return range_begin && (char *)address >= range_begin && (char *)address < range_begin + kRange;
}

size_t total_memory() { return (size_t)option("CUEMU_MEM_MB", 8192) << 20; }
size_t free_memory() { return total_memory() > used ? total_memory() - used : 0; }
void plan_allocation_failures(int after) { failures_after = after; }

static void *reserve(size_t bytes, int protection) {
    void *memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : memory;
}

static char *take_pages(size_t mapped) {
    if (!range_begin) {
        range_begin = (char *)reserve(kRange, PROT_NONE);
        if (!range_begin) return nullptr;
        range_next = range_begin + kPage;
    }
    if (range_next + mapped + kPage <= range_begin + kRange) {
        char *pages = range_next;
        range_next += mapped + kPage;
        return pages;
    }
    auto &again = freed[mapped];
    if (again.empty()) return nullptr;
    char *pages = again.back();
    again.pop_back();
    return pages;
}

static char *first_page(const Allocation &a) { return a.base - ((uintptr_t)a.base & (kPage - 1)); }

MemoryError allocate_device(uintptr_t *address, size_t bytes, void *context) {
    if (bytes == 0) return MemoryError::invalid;
    if (failures_after == 0) return MemoryError::out_of_memory;
    if (failures_after > 0) --failures_after;
    if (bytes > free_memory()) return MemoryError::out_of_memory;
    size_t mapped = (bytes + kPage - 1) / kPage * kPage;
    char *pages = take_pages(mapped);
    if (!pages || mprotect(pages, mapped, PROT_READ | PROT_WRITE)) return MemoryError::out_of_memory;
    // As near to the unmapped page as the alignment allows; canaries fill what is left on either side.
    size_t before = (mapped - bytes) / kAlignment * kAlignment;
    char *base = pages + before;
    if (option("CUEMU_FILL", 1)) memset(base, kFill, bytes);
    memset(pages, kCanary, before);
    memset(base + bytes, kCanary, pages + mapped - (base + bytes));
    Allocation made{base, bytes, mapped, context, false};
    made.initialised = (unsigned char *)reserve(bytes, PROT_READ | PROT_WRITE);
    allocations()[(uintptr_t)base] = made;
    used += bytes;
    *address = (uintptr_t)base;
    return MemoryError::none;
}

static std::string damage_of(const Allocation &a) {
    if (a.host) return "";
    const char *begin = first_page(a), *end = begin + a.mapped, *after = a.base + a.bytes;
    for (const char *p = after; p < end; ++p)
        if ((unsigned char)*p != kCanary)
            return "out-of-bounds write " + std::to_string(p - after) + " bytes past the end of an allocation of " +
                   std::to_string(a.bytes) + " bytes";
    for (const char *p = begin; p < a.base; ++p)
        if ((unsigned char)*p != kCanary)
            return "out-of-bounds write " + std::to_string(a.base - p) + " bytes before an allocation of " +
                   std::to_string(a.bytes) + " bytes";
    return "";
}

std::string damage_around(const char *arguments, size_t bytes) {
    for (size_t offset = 0; offset + sizeof(uintptr_t) <= bytes; offset += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, arguments + offset, sizeof word);
        Allocation *a = in_device_range((void *)word) ? nearest_allocation(word) : nullptr;
        if (!a) continue;
        std::string damage = damage_of(*a);
        if (!damage.empty()) return damage;
    }
    return "";
}

MemoryError free_device(uintptr_t address, std::string *damage) {
    auto found = allocations().find(address);
    if (found == allocations().end() || found->second.host) return MemoryError::invalid;
    Allocation gone = found->second;
    *damage = damage_of(gone);
    char *pages = first_page(gone);
    madvise(pages, gone.mapped, MADV_DONTNEED);
    mprotect(pages, gone.mapped, PROT_NONE);
    if (gone.initialised) munmap(gone.initialised, gone.bytes);
    if (gone.history) munmap(gone.history, history_bytes(gone.bytes));
    freed[gone.mapped].push_back(pages);
    used -= gone.bytes;
    allocations().erase(found);
    return MemoryError::none;
}

void set_initialised(uintptr_t address, size_t bytes, bool value) {
    Allocation *a = find_allocation(address);
    if (a && a->initialised) memset(a->initialised + (address - (uintptr_t)a->base), value, bytes);
}

void copy_initialised(uintptr_t to, uintptr_t from, size_t bytes) {
    Allocation *source = find_allocation(from), *target = find_allocation(to);
    if (!target || !target->initialised) return;
    unsigned char *marks = target->initialised + (to - (uintptr_t)target->base);
    if (source && source->initialised)
        memmove(marks, source->initialised + (from - (uintptr_t)source->base), bytes);
    else
        memset(marks, 1, bytes);
}
