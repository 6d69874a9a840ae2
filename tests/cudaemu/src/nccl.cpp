// Emulated NCCL: sums and copies between the processes of a machine, each with an emulated device of its own. They meet
// in shared memory that the unique id names, and wait for each other there, in the order of their streams.
//
// What a real library answers by a hang or by wrong numbers is an error here: other sizes or types on another rank, and
// a rank that does not come within CUEMU_NCCL_TIMEOUT seconds.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "options.h"
#include "sixteen.h"

#define EXPORT extern "C" __attribute__((visibility("default")))
#define API EXPORT int

extern "C" int cuemu_submit(void *stream, int (*work)(void *), void (*release)(void *), void *data);
extern "C" int cuemu_check_range(const void *address, size_t bytes, int written, const char *function);
extern "C" int cuemu_run_next(void *stream);
extern "C" int cuemu_lose_context(int code);
extern "C" int cuCtxGetCurrent(void **context);
extern "C" int cuCtxSetCurrent(void *context);
extern "C" int cuCtxGetDevice(int *device);
extern "C" int cuDeviceGetPCIBusId(char *text, int bytes, int device);

enum Status { kSuccess = 0, kCudaError = 1, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5 };
enum Operation { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kOperations = 5 };
enum Type { kInt8, kUint8, kInt32, kUint32, kInt64, kUint64, kFloat16, kFloat32, kFloat64, kBFloat16, kTypes };
static const size_t kBytes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};

constexpr int kLaunchFailed = 719;  // CUDA_ERROR_LAUNCH_FAILED
constexpr int kMostRanks = 16;
constexpr size_t kChunk = 256 << 10;
constexpr int kRun = 64;  // elements that are added up in one order of ranks

struct UniqueId {
    char internal[128];
};

struct Collective {
    bool broadcast;
    size_t count;
    int type, operation, root;
    const void *source;
    void *target;
    bool agrees(const Collective &other) const {
        return broadcast == other.broadcast && count == other.count && type == other.type &&
               operation == other.operation && root == other.root;
    }
};

// What the processes share. Files of new memory are zero: nobody is there.
struct Meeting {
    std::atomic<int> size, failed;
    std::atomic<unsigned> arrived, turn;
    std::atomic<uint64_t> begun;  // the most groups that a rank has begun to run
    struct Slot {
        std::atomic<int> taken;
        char device[32];
        Collective collective;
    } slots[kMostRanks];
    char data[kMostRanks][kChunk];
};

struct Communicator {
    uint64_t magic = 0xCC1;
    Meeting *meeting = nullptr;
    int rank = 0, size = 0;
    std::atomic<uint64_t> submitted{0}, begun{0};
    std::atomic<bool> ended{false};
    std::atomic<void *> stream{nullptr}, context{nullptr};
    std::thread helper;
};

static thread_local int depth = 0;
static thread_local std::vector<std::pair<std::pair<Communicator *, void *>, Collective>> queued;
static thread_local std::string message;
static std::atomic<uint64_t> collectives{0};

static std::atomic<int> communicators{0};

// Sums and copies that this process has taken part in, and its communicators that were not destroyed.
EXPORT uint64_t cuemu_nccl_count() { return collectives; }
EXPORT int cuemu_nccl_communicators() { return communicators; }

static int refuse(int status, const std::string &text) {
    message = text;
    if (option("CUEMU_VERBOSE", 0)) fprintf(stderr, "cuemu: nccl: %s\n", text.c_str());
    return status;
}

static bool valid(const Communicator *comm) { return comm && comm->magic == 0xCC1; }

// Waits until all ranks are here; false if one has failed, or does not come.
static bool meet(Communicator *comm) {
    Meeting *m = comm->meeting;
    const unsigned turn = m->turn;
    if (m->arrived.fetch_add(1) + 1 == (unsigned)comm->size) {
        m->arrived = 0;
        ++m->turn;
        return !m->failed;
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(option("CUEMU_NCCL_TIMEOUT", 60));
    for (int look = 0; m->turn == turn; ++look) {
        if (m->failed) return false;
        if (std::chrono::steady_clock::now() > limit) {
            m->failed = 1;
            return false;
        }
        look < 50 ? (void)sched_yield() : (void)usleep(50);
    }
    return !m->failed;
}

template <class T, class Sum>
static void reduce(Communicator *comm, const Collective &what, size_t first, size_t count, T *target) {
    const T share = T(Sum(1) / Sum(comm->size));
    const bool scales = what.operation == kAvg && T(0.5) != T(0);
    for (size_t i = 0; i < count; ++i) {
        // A ring begins elsewhere for each part; each rank adds to what came, rounded to the type.
        const int start = (first + i) / kRun % comm->size;
        auto value = [&](int turn) {
            T found = ((const T *)comm->meeting->data[(start + turn) % comm->size])[i];
            return scales ? T(Sum(found) * Sum(share)) : found;
        };
        T result = value(0);
        for (int turn = 1; turn < comm->size; ++turn) {
            const Sum a = result, b = value(turn);
            switch (what.operation) {
                case kProd: result = T(a * b); break;
                case kMax: result = T(b > a ? b : a); break;
                case kMin: result = T(b < a ? b : a); break;
                default: result = T(a + b);
            }
        }
        target[i] = what.operation == kAvg && !scales ? T(Sum(result) / Sum(comm->size)) : result;
    }
}

static void reduce_any(Communicator *comm, const Collective &what, size_t first, size_t count, void *target) {
    switch (what.type) {
        case kInt8: return reduce<int8_t, int8_t>(comm, what, first, count, (int8_t *)target);
        case kUint8: return reduce<uint8_t, uint8_t>(comm, what, first, count, (uint8_t *)target);
        case kInt32: return reduce<int32_t, int32_t>(comm, what, first, count, (int32_t *)target);
        case kUint32: return reduce<uint32_t, uint32_t>(comm, what, first, count, (uint32_t *)target);
        case kInt64: return reduce<int64_t, int64_t>(comm, what, first, count, (int64_t *)target);
        case kUint64: return reduce<uint64_t, uint64_t>(comm, what, first, count, (uint64_t *)target);
        case kFloat16: return reduce<Half, float>(comm, what, first, count, (Half *)target);
        case kFloat32: return reduce<float, float>(comm, what, first, count, (float *)target);
        case kFloat64: return reduce<double, double>(comm, what, first, count, (double *)target);
        default: return reduce<BFloat, float>(comm, what, first, count, (BFloat *)target);
    }
}

static bool run_one(Communicator *comm, const Collective &what) {
    Meeting *m = comm->meeting;
    m->slots[comm->rank].collective = what;
    if (!meet(comm)) return false;
    for (int rank = 0; rank < comm->size; ++rank)
        if (!m->slots[rank].collective.agrees(m->slots[0].collective)) m->failed = 1;
    if (!meet(comm)) return false;
    const size_t bytes = kBytes[what.type], most = kChunk / bytes;
    for (size_t first = 0; first < what.count; first += most) {
        const size_t count = what.count - first < most ? what.count - first : most;
        char *target = (char *)what.target + first * bytes;
        if (!what.broadcast || comm->rank == what.root)
            memcpy(m->data[what.broadcast ? 0 : comm->rank], (const char *)what.source + first * bytes, count * bytes);
        if (!meet(comm)) return false;
        if (what.broadcast)
            memcpy(target, m->data[0], count * bytes);
        else
            reduce_any(comm, what, first, count, target);
        if (!meet(comm)) return false;
    }
    ++collectives;
    return true;
}

struct Group {
    Communicator *comm;
    std::vector<Collective> members;
};

// The work of a stream: the collectives of a group.
static int run_group(void *data) {
    const Group *group = (Group *)data;
    Meeting *m = group->comm->meeting;
    const uint64_t number = ++group->comm->begun;
    for (uint64_t most = m->begun; most < number && !m->begun.compare_exchange_weak(most, number);) {
    }
    for (const Collective &what : group->members)
        if (!run_one(group->comm, what)) {
            fprintf(stderr, "cuemu: nccl: rank %d: a collective of %zu elements failed: another rank failed, did not "
                            "come, or calls one of other type or size\n", group->comm->rank, what.count);
            cuemu_lose_context(kLaunchFailed);
            return kLaunchFailed;
        }
    return kSuccess;
}

// Late streams wait until somebody asks. Other processes cannot ask, so this thread does so for them.
static void help(Communicator *comm) {
    for (int waited = 0; !comm->ended;) {
        usleep(2000);
        const bool wanted = comm->meeting->begun > comm->begun && comm->submitted > comm->begun;
        waited = wanted ? waited + 1 : 0;
        if (waited < 10) continue;
        cuCtxSetCurrent(comm->context);
        cuemu_run_next(comm->stream);
    }
    cuCtxSetCurrent(nullptr);
}

static int launch() {
    auto calls = std::move(queued);
    queued.clear();
    if (const int status = option("CUEMU_NCCL_FAIL", 0)) return refuse(status, "CUEMU_NCCL_FAIL asks for this");
    std::map<std::pair<Communicator *, void *>, Group *> groups;
    std::vector<std::pair<void *, Group *>> in_order;
    for (auto &[where, what] : calls) {
        Group *&group = groups[where];
        if (!group) in_order.push_back({where.second, group = new Group{where.first, {}}});
        group->members.push_back(what);
    }
    for (auto &[stream, group] : in_order) {
        void *context = nullptr;
        cuCtxGetCurrent(&context);
        group->comm->context = context;
        group->comm->stream = stream;
        ++group->comm->submitted;
        if (cuemu_submit(stream, run_group, [](void *data) { delete (Group *)data; }, group))
            return refuse(kCudaError, "a stream did not take the work");
    }
    return kSuccess;
}

static int queue(Communicator *comm, void *stream, const Collective &what, const char *function) {
    if (!valid(comm)) return refuse(kInvalidArgument, std::string(function) + ": no communicator");
    if (what.type < 0 || what.type >= kTypes || what.operation < 0 || what.operation >= kOperations || what.root < 0 ||
        what.root >= comm->size)
        return refuse(kInvalidArgument, std::string(function) + ": no such type, operation or root");
    const size_t bytes = what.count * kBytes[what.type];
    if (cuemu_check_range(what.source, bytes, 0, function) || cuemu_check_range(what.target, bytes, 1, function))
        return refuse(kInvalidArgument, std::string(function) + ": not memory of the device");
    queued.push_back({{comm, stream}, what});
    return depth ? (int)kSuccess : launch();
}

API ncclAllReduce(const void *source, void *target, size_t count, int type, int operation, Communicator *comm,
                  void *stream) {
    return queue(comm, stream, {false, count, type, operation, 0, source, target}, __func__);
}

API ncclBroadcast(const void *source, void *target, size_t count, int type, int root, Communicator *comm,
                  void *stream) {
    return queue(comm, stream, {true, count, type, 0, root, source, target}, __func__);
}

API ncclGroupStart() {
    ++depth;
    return kSuccess;
}

API ncclGroupEnd() {
    if (!depth) return refuse(kInvalidUsage, "ncclGroupEnd: no group was started");
    return --depth ? (int)kSuccess : launch();
}

// Memory whose process ended before all ranks had met stays behind under its name.
static void remove_left_behind() {
    DIR *folder = opendir("/dev/shm");
    if (!folder) return;
    while (const dirent *entry = readdir(folder)) {
        int process = 0;
        if (sscanf(entry->d_name, "cuemu-nccl-%d-", &process) == 1 && kill(process, 0) && errno == ESRCH)
            shm_unlink((std::string("/") + entry->d_name).c_str());
    }
    closedir(folder);
}

API ncclGetUniqueId(UniqueId *id) {
    remove_left_behind();
    static std::atomic<int> number{0};
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/cuemu-nccl-%d-%d", getpid(), ++number);
    shm_unlink(id->internal);  // of an earlier process of this number
    int file = shm_open(id->internal, O_CREAT | O_EXCL | O_RDWR, 0600);
    if (file < 0 || ftruncate(file, sizeof(Meeting))) return refuse(kSystemError, "ncclGetUniqueId: no shared memory");
    close(file);
    return kSuccess;
}

static int join(Communicator *comm, const UniqueId &id) {
    int file = shm_open(id.internal, O_RDWR, 0600);
    if (file < 0) return refuse(kInvalidArgument, "ncclCommInitRank: the id is not one of ncclGetUniqueId");
    void *memory = mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return refuse(kSystemError, "ncclCommInitRank: no shared memory");
    Meeting *m = comm->meeting = (Meeting *)memory;
    int none = 0;
    if (!m->size.compare_exchange_strong(none, comm->size) && none != comm->size) {
        m->failed = 1;
        return refuse(kInvalidArgument, "ncclCommInitRank: ranks disagree about their number");
    }
    Meeting::Slot &own = m->slots[comm->rank];
    if (own.taken.exchange(1)) {
        m->failed = 1;
        return refuse(kInvalidArgument, "ncclCommInitRank: this rank was there already");
    }
    int device = 0;
    if (cuCtxGetDevice(&device)) return refuse(kCudaError, "ncclCommInitRank: no context is current");
    cuDeviceGetPCIBusId(own.device, sizeof own.device, device);
    const bool all = meet(comm);
    if (!comm->rank) shm_unlink(id.internal);
    if (!all) return refuse(kSystemError, "ncclCommInitRank: a rank failed, or did not come");
    for (int rank = 0; rank < comm->size; ++rank)
        if (rank != comm->rank && !strcmp(m->slots[rank].device, own.device))
            return refuse(kInvalidUsage, "ncclCommInitRank: two ranks have the device " + std::string(own.device));
    return kSuccess;
}

API ncclCommInitRank(Communicator **made, int size, UniqueId id, int rank) {
    if (size < 1 || size > kMostRanks || rank < 0 || rank >= size)
        return refuse(kInvalidArgument, "ncclCommInitRank: no such rank");
    auto *comm = new Communicator;
    comm->rank = rank;
    comm->size = size;
    if (int failed = join(comm, id)) {
        delete comm;
        return failed;
    }
    comm->helper = std::thread(help, comm);
    *made = comm;
    ++communicators;
    return kSuccess;
}

// Not deleted: work that waits in a stream may point to it. After an abort the other ranks go on waiting, as with NCCL.
static int end(Communicator *comm, bool runs) {
    if (!valid(comm)) return refuse(kInvalidArgument, "no communicator, or one that was destroyed");
    while (runs && comm->submitted > comm->begun && cuemu_run_next(comm->stream)) {
    }
    comm->ended = true;
    comm->helper.join();
    comm->magic = 0;
    --communicators;
    return kSuccess;
}

API ncclCommDestroy(Communicator *comm) { return end(comm, true); }
API ncclCommAbort(Communicator *comm) { return end(comm, false); }

API ncclGetVersion(int *version) {
    *version = option("CUEMU_NCCL_VERSION", 22703);
    return kSuccess;
}

EXPORT const char *ncclGetLastError(const Communicator *) { return message.c_str(); }

EXPORT const char *ncclGetErrorString(int status) {
    switch (status) {
        case kSuccess: return "no error";
        case kCudaError: return "unhandled cuda error";
        case kSystemError: return "unhandled system error";
        case kInvalidArgument: return "invalid argument";
        case kInvalidUsage: return "invalid usage";
        default: return "internal error";
    }
}
