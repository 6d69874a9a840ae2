// Modules: shared objects made by the stand-in for nvcc, loaded into this process.
#pragma once
#include <map>

#include "driver.h"

struct Module;

struct Function {
    const cuemu_kernel *kernel = nullptr;
    Module *module = nullptr;
    int dynamic_shared_limit = kDefaultSharedLimit;
    bool asked_for_more = false;  // by cuFuncSetAttribute
    // The launch interface from before CUDA 4, which PyCUDA still exports.
    dim3 old_block;
    unsigned old_shared = 0;
    size_t old_argument_bytes = 0;
    char old_arguments[4096];

    int static_shared() const { return kernel->shared_bytes > 0 ? kernel->shared_bytes : 0; }
    // All that a block may have, declared or dynamic.
    int shared_allowed() const { return asked_for_more ? shared_limit() : kDefaultSharedLimit; }
    // Of one thread as the hardware hands them out; 0: not known.
    int registers() const { return kernel->registers > 0 ? (kernel->registers + 7) / 8 * 8 : 0; }
};

struct Module {
    void *library = nullptr;
    std::string path;
    uintptr_t base = 0;
    const char *data_begin = nullptr, *data_end = nullptr;
    bool checked = false;
    Context *context = nullptr;  // that it was loaded in
    SharedLayout shared_layout;
    std::map<std::string, Function> functions;
};
