/* The worker threads of the process, on which all kernels run: see team.h for its use.
 *
 * A call of share makes a team: it posts its work to idle workers, takes units of work itself, and when none is left
 * withdraws the posts of workers that have not begun. So it never waits for a thread to wake up, and a worker whose
 * core is busy leaves its units to others. The units are in one part, or in one part per member: then each member
 * begins with its own part and continues with those of others.
 *
 * After a sleep, or when the process was stopped, the system may let a worker wait behind the caller on the same processor
 * while another one is idle, for many milliseconds: both wake up often, which looks like little load. A worker that
 * begins nothing several times in a row and runs where the caller runs is moved away, and one that begins work there moves itself.
 *
 * A waiting thread spins for a moment, because the next kernel mostly follows within microseconds; then it yields in
 * each iteration; then it sleeps. Several threads of the program can have teams at the same time.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "team.h"

#define MOST_THREADS 256
#define MOST_TEAMS 16
#define APART _Alignas(128) /* two cache lines, because processors prefetch them in pairs: no false sharing */

/* Nanoseconds of spinning after which a waiting thread yields, and after which it sleeps. */
#define TURNS_NS 50000
#define YIELDS_NS 1000000
#define NAP_NS 50000
#define MISSES 4 /* calls in a row of which a worker begins nothing until it is moved */
#define PAUSES 8 /* pause instructions between two readings of the clock; one takes up to 140 cycles */

#define STACK_BYTES (4 << 20) /* of a worker: kernels need hundreds of kilobytes, musl's default is 128 KB */
#define AGAIN_NS 1000000000   /* nanoseconds after a failure to start a thread until the next attempt */

/* What a worker does, in the two lowest bits of its word; above them is the number of the post it was given. */
enum { IDLE, CLAIMED, POSTED, RUNNING, STATES };

struct worker {
    APART _Atomic uint64_t word;
    _Atomic int asleep, missed;
    int64_t moved; /* time of its last own move */
    _Atomic int thread, processor; /* the system's number of the thread (0: unknown), and where it was last seen */
    struct team *team; /* of the post, as is me */
    int64_t me;
    pthread_mutex_t lock;
    pthread_cond_t woken;
};

struct post {
    struct worker *worker;
    uint64_t number;
};

struct part {
    APART _Atomic int64_t next; /* unit */
    int64_t end;
};

struct team {
    nl_range *range;
    const void *context;
    int64_t size, unit, count; /* of parts */
    int processor;             /* of the caller, when it began */
    struct part parts[MOST_THREADS];
    struct post posts[MOST_THREADS]; /* from 1 on */
    APART _Atomic int taken;
};

static struct team teams[MOST_TEAMS];
static struct worker workers[MOST_THREADS];
static _Atomic int64_t started; /* workers */
static _Atomic int64_t refused; /* time of the last failure to start one; 0: none */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static struct nl_library limited; /* the library limited to one thread, and by how many callers */
static int64_t limits;
static int threads_before, owed; /* owed: the limit that a fork has to lift, because none of its threads will */
static pthread_mutex_t limiting = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void pause_core(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * (int64_t)1000000000 + t.tv_nsec;
}

/* One iteration of a wait that began at *since (0 at first). Returns how long it has lasted, in nanoseconds. */
static int64_t moment(int64_t *since) {
    for (int i = 0; i < PAUSES; i++)
        pause_core();
    const int64_t time = now();
    if (*since == 0)
        *since = time;
    if (time - *since > TURNS_NS)
        sched_yield();
    return time - *since;
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static uint64_t state_of(uint64_t word) {
    return word % STATES;
}

/* Take units until none is left: those of the member's own part, then those of the parts after it. */
static void take_units(struct team *team, int64_t me) {
    for (int64_t i = 0; i < team->count; i++) {
        struct part *part = &team->parts[(me + i) % team->count];
        int64_t unit;
        while (atomic_load_explicit(&part->next, memory_order_relaxed) < part->end &&
               (unit = atomic_fetch_add_explicit(&part->next, 1, memory_order_relaxed)) < part->end) {
            const int64_t lo = unit * team->unit, hi = lo + team->unit;
            team->range(team->context, lo, hi < team->size ? hi : team->size, me);
        }
    }
}

/* Workers ----------------------------------------------------------------------------------------------------------*/

static void wake(struct worker *w) {
    if (atomic_load(&w->asleep)) {
        pthread_mutex_lock(&w->lock);
        pthread_cond_signal(&w->woken);
        pthread_mutex_unlock(&w->lock);
    }
}

static void sleep_until_posted(struct worker *w) {
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->asleep, 1);
    while (state_of(atomic_load(&w->word)) != POSTED)
        pthread_cond_wait(&w->woken, &w->lock);
    atomic_store(&w->asleep, 0);
    pthread_mutex_unlock(&w->lock);
}

static int processor_here(void) {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

/* Move a worker to another processor than this one, if it may run there. */
static void move_away(struct worker *w, int processor) {
#if defined(__linux__)
    const pid_t thread = atomic_load(&w->thread);
    cpu_set_t all, others;
    if (!thread || sched_getaffinity(thread, sizeof all, &all))
        return;
    others = all;
    CPU_CLR(processor, &others);
    if (CPU_COUNT(&others) && !sched_setaffinity(thread, sizeof others, &others))
        sched_setaffinity(thread, sizeof all, &all);
#else
    (void)w, (void)processor;
#endif
}

/* A worker begins work of a caller on a processor: they are to run side by side. */
static void leave(struct worker *w, int processor) {
    if (processor < 0 || processor_here() != processor)
        return;
    const int64_t time = now();
    if (time - w->moved > YIELDS_NS) { /* not in each call, if the others are busy, too */
        move_away(w, processor);
        w->moved = time;
    }
}

/* A worker that is awake has begun nothing of a call. */
static void miss(struct worker *w) {
    if (atomic_load(&w->asleep) || atomic_fetch_add_explicit(&w->missed, 1, memory_order_relaxed) + 1 < MISSES)
        return;
    atomic_store_explicit(&w->missed, 0, memory_order_relaxed);
    const int here = processor_here();
    if (here >= 0 && here == atomic_load_explicit(&w->processor, memory_order_relaxed))
        move_away(w, here);
}

static void *serve(void *argument) {
    struct worker *const w = argument;
#if defined(__linux__)
    atomic_store(&w->thread, (int)syscall(SYS_gettid));
#endif
    int seen = 0;
    for (int64_t since = 0;;) {
        const int here = processor_here();
        if (here != seen) /* the caller reads this cache line, too: it is not written for nothing */
            atomic_store_explicit(&w->processor, seen = here, memory_order_relaxed);
        uint64_t word = atomic_load_explicit(&w->word, memory_order_acquire);
        if (state_of(word) == POSTED) {
            const uint64_t number = word - POSTED;
            if (atomic_compare_exchange_strong(&w->word, &word, number + RUNNING)) {
                leave(w, w->team->processor);
                take_units(w->team, w->me);
                atomic_store_explicit(&w->word, number + IDLE, memory_order_release);
            }
            since = 0;
        } else if (moment(&since) > YIELDS_NS) {
            sleep_until_posted(w);
            since = 0;
        }
    }
    return 0;
}

/* Forks ------------------------------------------------------------------------------------------------------------*/

/* A forked process has none of its parent's threads, whose operations may have been interrupted anywhere: the state is
 * reset. Its first team starts new threads. */
static void forget(void) {
    for (int i = 0; i < MOST_TEAMS; i++)
        atomic_store(&teams[i].taken, 0);
    memset(workers, 0, sizeof workers);
    atomic_store(&started, 0);
    atomic_store(&refused, 0);
    pthread_mutex_init(&starting, 0);
    pthread_mutex_init(&limiting, 0);
    owed = limits > 0 ? threads_before : 0;
    limits = 0;
}

static void prepare(void) {
#if defined(_WIN32)
    (void)forget; /* no process forks */
#else
    pthread_atfork(0, 0, forget);
#endif
}

/* Other libraries' threads -----------------------------------------------------------------------------------------*/

static void limit(const struct nl_library *library) {
    pthread_once(&prepared, prepare);
    pthread_mutex_lock(&limiting);
    if (limits++ == 0) {
        limited = *library;
        threads_before = library->get_threads();
        if (threads_before > 1)
            library->set_threads(1);
    }
    pthread_mutex_unlock(&limiting);
}

static void put_back(int threads) {
    if (threads > 1 && limited.get_threads() == 1) /* else someone has changed it meanwhile */
        limited.set_threads(threads);
}

static void lift(void) {
    pthread_mutex_lock(&limiting);
    if (--limits == 0)
        put_back(threads_before);
    pthread_mutex_unlock(&limiting);
}

/* Called in a forked process once it may start threads, which the library's function may do. */
void nl_after_fork(void) {
    put_back(owed);
    owed = 0;
}

/* Starting workers -------------------------------------------------------------------------------------------------*/

/* Workers block signals, which the program's threads handle, except faults, so that the program's handler reports them.
 */
#if defined(_WIN32)
typedef int signals; /* no thread receives any */
static void block_signals(signals *before) {
    *before = 0;
}

static void unblock_signals(const signals *before) {
    (void)before;
}
#else
typedef sigset_t signals;
static void block_signals(signals *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    signals blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, before);
}

static void unblock_signals(const signals *before) {
    pthread_sigmask(SIG_SETMASK, before, 0);
}
#endif

/* Start a thread for worker `w`; returns the system's error number if that fails. */
static int start_worker(struct worker *w) {
    pthread_t thread;
    pthread_attr_t detached;
    pthread_mutex_init(&w->lock, 0);
    pthread_cond_init(&w->woken, 0);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, STACK_BYTES);
    const int error = pthread_create(&thread, &detached, serve, w);
    pthread_attr_destroy(&detached);
    return error;
}

/* Start workers until there are `wanted`, if the system allows; returns how many of these there are. */
static int64_t have_workers(int64_t wanted) {
    int64_t count = atomic_load_explicit(&started, memory_order_acquire);
    if (count >= wanted)
        return wanted;
    const int64_t then = atomic_load_explicit(&refused, memory_order_relaxed);
    if (then && now() - then < AGAIN_NS)
        return count;
    pthread_once(&prepared, prepare);
    signals before;
    block_signals(&before); /* which threads inherit */
    pthread_mutex_lock(&starting);
    for (count = atomic_load(&started); count < wanted; count++) {
        if (start_worker(&workers[count])) {
            atomic_store_explicit(&refused, now(), memory_order_relaxed);
            break;
        }
        atomic_store_explicit(&started, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&starting);
    unblock_signals(&before);
    return least(count, wanted);
}

/* Teams ------------------------------------------------------------------------------------------------------------*/

static struct team *free_team(void) {
    for (int i = 0; i < MOST_TEAMS; i++) {
        int expected = 0;
        if (atomic_compare_exchange_strong(&teams[i].taken, &expected, 1))
            return &teams[i];
    }
    return 0;
}

/* Post the team's work to idle workers and record the numbers of these posts; returns the number of members. */
static int64_t post(struct team *team, int64_t threads) {
    const int64_t available = have_workers(threads - 1);
    int64_t members = 1;
    for (int64_t i = 0; i < available && members < threads; i++) {
        struct worker *w = &workers[i];
        uint64_t word = atomic_load_explicit(&w->word, memory_order_relaxed);
        if (state_of(word) != IDLE || !atomic_compare_exchange_strong(&w->word, &word, word + STATES + CLAIMED))
            continue;
        const uint64_t number = word + STATES;
        w->team = team;
        w->me = members;
        team->posts[members++] = (struct post){w, number};
        atomic_store(&w->word, number + POSTED);
        wake(w);
    }
    return members;
}

/* Withdraw posts that were not begun, and wait for the others: workers use the caller's memory until then. */
static void disband(struct team *team, int64_t members) {
    for (int64_t i = 1; i < members; i++) {
        const struct post p = team->posts[i];
        uint64_t word = p.number + POSTED;
        if (atomic_compare_exchange_strong(&p.worker->word, &word, p.number + IDLE)) {
            miss(p.worker);
            continue;
        }
        if (atomic_load_explicit(&p.worker->missed, memory_order_relaxed))
            atomic_store_explicit(&p.worker->missed, 0, memory_order_relaxed);
        for (int64_t since = 0; atomic_load_explicit(&p.worker->word, memory_order_acquire) == p.number + RUNNING;)
            if (moment(&since) > YIELDS_NS)
                nanosleep(&(struct timespec){0, NAP_NS}, 0);
    }
}

static void share(nl_range *range, const void *context, int64_t size, int64_t unit, int64_t threads, int64_t parts) {
    struct team *team = free_team();
    if (!team) {
        range(context, 0, size, 0);
        return;
    }
    const int64_t units = (size + unit - 1) / unit, most = least(least(threads, units), MOST_THREADS);
    team->range = range;
    team->context = context;
    team->size = size;
    team->unit = unit;
    team->count = least(parts, most);
    team->processor = processor_here();
    for (int64_t i = 0; i < team->count; i++) {
        atomic_store_explicit(&team->parts[i].next, units * i / team->count, memory_order_relaxed);
        team->parts[i].end = units * (i + 1) / team->count;
    }
    const int64_t members = post(team, most);
    take_units(team, 0);
    disband(team, members);
    atomic_store_explicit(&team->taken, 0, memory_order_release);
}

const struct nl_workers nl_the_workers = {share, limit, lift};
