// Loading of modules, and what can be asked of a kernel.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "module.h"

static std::set<Module *> &loaded() {
    static auto *modules = new std::set<Module *>;
    return *modules;
}

bool in_module_data(CUdeviceptr address, size_t bytes) {
    for (Module *module : loaded())
        if ((const char *)address >= module->data_begin && (const char *)address + bytes <= module->data_end)
            return true;
    return false;
}

// The dynamic loader wants files. They lie in a folder of this process alone, which goes when it ends.
class ModuleFolder {
  public:
    ModuleFolder() {
        const char *base = getenv("TMPDIR");
        path_ = std::string(base && *base ? base : "/tmp") + "/cuemu-XXXXXX";
        if (!mkdtemp(&path_[0])) path_.clear();
        owner_ = getpid();
    }
    ~ModuleFolder() {
        if (getpid() == owner_) rmdir(path_.c_str());
    }
    std::string write(const char *image, size_t bytes) {
        std::string file = path_ + "/" + std::to_string(getpid()) + "-" + std::to_string(++count_) + ".so";
        std::ofstream(file, std::ios::binary).write(image, bytes);
        return file;
    }

  private:
    std::string path_;
    pid_t owner_;
    int count_ = 0;
};

// A module's file is needed as long as line numbers are read from it.
struct ModuleFiles {
    std::set<std::string> paths;
    ~ModuleFiles() {
        for (const std::string &path : paths) unlink(path.c_str());
    }
};

static ModuleFolder &folder() {
    static ModuleFolder made;
    return made;
}

static ModuleFiles &files() {
    folder();  // made first, so that it is removed last
    static ModuleFiles made;
    return made;
}

// cuModuleLoadData is not told how long the image is: an ELF file ends with the table of its sections.
static size_t image_bytes(const char *image) {
    Elf64_Ehdr header;
    memcpy(&header, image, sizeof header);
    return header.e_shoff + (size_t)header.e_shnum * header.e_shentsize;
}

static CUresult check_image(const char *image) {
    Elf64_Ehdr header;
    if (memcmp(image, ELFMAG, SELFMAG))
        return fail(CUDA_ERROR_INVALID_IMAGE, "the module is not a cubin (PTX is not emulated)");
    memcpy(&header, image, sizeof header);
    if (header.e_machine != EM_X86_64)
        return fail(
            CUDA_ERROR_NO_BINARY_FOR_GPU,
            "the module was compiled for a GPU; the emulator needs its own stand-in for nvcc: set NEONLIKE_NVCC "
            "and PATH as `python -m tests.cudaemu env` prints them");
    return CUDA_SUCCESS;
}

// Kernels find the emulator's functions among the symbols of the process.
static void make_symbols_global() {
    static bool done = false;
    Dl_info info;
    if (done || !dladdr((void *)&make_symbols_global, &info)) return;
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL);
    done = true;
}

static void find_segments(Module *module) {
    struct link_map *map = nullptr;
    dlinfo(module->library, RTLD_DI_LINKMAP, &map);
    module->base = map->l_addr;
    auto visit = [](dl_phdr_info *info, size_t, void *data) {
        Module *module = (Module *)data;
        if (info->dlpi_addr != module->base) return 0;
        uintptr_t begin = ~0ull, end = 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr) &segment = info->dlpi_phdr[i];
            if (segment.p_type != PT_LOAD) continue;
            begin = std::min<uintptr_t>(begin, module->base + segment.p_vaddr);
            end = std::max<uintptr_t>(end, module->base + segment.p_vaddr + segment.p_memsz);
        }
        module->data_begin = (const char *)begin;
        module->data_end = (const char *)end;
        return 1;
    };
    dl_iterate_phdr(visit, module);
}

API cuModuleLoadData(CUmodule *handle, const void *image) {
    IN_CONTEXT;
    if (CUresult failed = check_image((const char *)image)) return failed;
    make_symbols_global();
    std::unique_ptr<Module> module(new Module);
    module->path = folder().write((const char *)image, image_bytes((const char *)image));
    module->library = dlopen(module->path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const int *version = module->library ? (const int *)dlsym(module->library, "cuemu_abi_version") : nullptr;
    if (!version || *version != CUEMU_ABI_VERSION) {
        const char *reason = module->library ? nullptr : dlerror();
        unlink(module->path.c_str());
        return fail(CUDA_ERROR_INVALID_IMAGE, reason ? "the module cannot be loaded: " + std::string(reason)
                                                     : "the module was made by another version of the emulator's nvcc");
    }
    const int *checked = (const int *)dlsym(module->library, "cuemu_checked");
    module->checked = checked && *checked;
    if (module->checked)
        files().paths.insert(module->path);
    else
        unlink(module->path.c_str());
    module->context = context;
    find_segments(module.get());
    loaded().insert(module.get());
    *handle = (CUmodule)module.release();
    return CUDA_SUCCESS;
}

API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options, void **values) {
    CUresult result = cuModuleLoadData(module, image);
    const std::string message = result ? last_message().substr(0, 1000) : "";
    char *log = nullptr;
    for (unsigned i = 0; i < count; ++i)
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = (char *)values[i];
    if (log) strcpy(log, message.c_str());
    for (unsigned i = 0; i < count; ++i) {
        if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES) values[i] = nullptr;
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            values[i] = (void *)(log && result ? message.size() + 1 : 0);
    }
    return result;
}

API cuModuleLoad(CUmodule *module, const char *path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return fail(CUDA_ERROR_FILE_NOT_FOUND, std::string("cannot read ") + path);
    std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    image.resize(std::max(image.size(), sizeof(Elf64_Ehdr)));
    return cuModuleLoadData(module, image.data());
}

API cuModuleUnload(CUmodule handle) {
    IN_CONTEXT;
    finish_all(false);
    Module *module = (Module *)handle;
    if (!loaded().erase(module)) return fail(CUDA_ERROR_INVALID_HANDLE, "the module was unloaded before");
    dlclose(module->library);
    if (files().paths.erase(module->path)) unlink(module->path.c_str());
    delete module;
    return CUDA_SUCCESS;
}

API cuModuleGetFunction(CUfunction *handle, CUmodule module_handle, const char *name) {
    IN_CONTEXT;
    Module *module = (Module *)module_handle;
    if (!loaded().count(module)) return fail(CUDA_ERROR_INVALID_HANDLE, "the module was unloaded");
    auto *kernel = (const cuemu_kernel *)dlsym(module->library, ("cuemu_kernel_" + std::string(name)).c_str());
    if (!kernel) return fail(CUDA_ERROR_NOT_FOUND, "the module has no kernel named " + std::string(name));
    Function &function = module->functions[name];
    function.kernel = kernel;
    function.module = module;
    *handle = (CUfunction)&function;
    return CUDA_SUCCESS;
}

API cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    IN_CONTEXT;
    void *variable = dlsym(((Module *)module)->library, name);
    Dl_info info;
    const ElfW(Sym) *symbol = nullptr;
    if (!variable || !dladdr1(variable, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
        return fail(CUDA_ERROR_NOT_FOUND, "the module has no variable named " + std::string(name));
    if (address) *address = (CUdeviceptr)variable;
    if (bytes) *bytes = symbol->st_size;
    return CUDA_SUCCESS;
}

// Registers, shared and local memory are those of the real nvcc where it compiled too (CUEMU_REAL_NVCC), else 0.
API cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction handle) {
    const Function *function = (Function *)handle;
    const cuemu_kernel *kernel = function->kernel;
    switch (which) {
        case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
            *value = kernel->max_threads;
            if (int registers = function->registers()) *value = std::min(*value, 65536 / registers / 32 * 32);
            break;
        case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = function->static_shared(); break;
        case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = std::max(0, kernel->local_bytes); break;
        case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = std::max(0, kernel->registers); break;
        case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = compute_capability(); break;
        case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_shared_limit; break;
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}

API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
    Function *function = (Function *)handle;
    if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return CUDA_SUCCESS;
    if (value < 0 || value + function->static_shared() > shared_limit())
        return fail(CUDA_ERROR_INVALID_VALUE, "a block has " + std::to_string(shared_limit()) +
                                                  " bytes of shared memory at most, asked for " +
                                                  std::to_string(value));
    function->dynamic_shared_limit = value;
    function->asked_for_more = true;
    return CUDA_SUCCESS;
}

API cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads, size_t dynamic_shared) {
    const Function *function = (Function *)handle;
    int warps = std::max(1, (threads + 31) / 32);
    int shared = function->static_shared() + (int)dynamic_shared + 1024;
    *blocks = std::min({32, 64 / warps, (shared_limit() + 1024) / shared});
    if (int registers = function->registers()) *blocks = std::min(*blocks, 65536 / (registers * 32 * warps));
    return CUDA_SUCCESS;
}
