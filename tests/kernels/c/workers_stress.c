/* Has several threads share work at once, some from within others' units, and forks; for ThreadSanitizer.
 * Compiled together with workers.c, and run with the number of calls of each thread. Exits with 0 if every element was worked on once. */
#include "workers.c"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 97
#define CALLERS 6

static int threads_of_library = 4;

static int get_threads(void) {
    return __atomic_load_n(&threads_of_library, __ATOMIC_RELAXED);
}

static void set_threads(int count) {
    __atomic_store_n(&threads_of_library, count, __ATOMIC_RELAXED);
}

static const struct nl_library library = {get_threads, set_threads};

struct call {
    int counts[SIZE], members[MOST_THREADS]; /* not atomic: one thread an element, one a member */
    int64_t spin, depth, threads;
};

static int run(struct call *call, unsigned seed);

static void unit(const void *context, int64_t lo, int64_t hi, int64_t me) {
    struct call *call = (struct call *)context;
    call->members[me]++;
    for (int64_t i = lo; i < hi; i++) {
        for (volatile int64_t k = 0; k < call->spin; k++) {
        }
        call->counts[i]++;
    }
    if (call->depth > 0 && lo == 0) {
        struct call inner = {.spin = call->spin, .depth = call->depth - 1, .threads = call->threads};
        if (run(&inner, 3))
            abort();
    }
}

static int limiting_too; /* not at first: its mutex keeps callers apart, too, and would hide what does not */

/* 1 if an element was left out or worked on twice. */
static int run(struct call *call, unsigned seed) {
    if (limiting_too)
        nl_the_workers.limit(&library);
    nl_the_workers.share(unit, call, SIZE, 1 + seed % 7, call->threads, seed % 2 ? call->threads : 1);
    if (limiting_too)
        nl_the_workers.lift();
    for (int i = 0; i < SIZE; i++)
        if (call->counts[i] != 1)
            return 1;
    return 0;
}

static int rounds = 300;

static void *work(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number * 7919u + 1;
    for (int i = 0; i < rounds; i++) {
        seed = seed * 1664525u + 1013904223u;
        struct call call = {.spin = seed >> 20, .depth = (seed >> 20) % 3, .threads = 2 + (seed >> 16) % 6};
        if (run(&call, seed >> 8)) {
            fprintf(stderr, "an element was not worked on once\n");
            exit(1);
        }
        if (seed >> 26 == 0) /* until the workers sleep */
            nanosleep(&(struct timespec){0, 3 * YIELDS_NS}, 0);
    }
    return 0;
}

static int all_callers(void) {
    pthread_t callers[CALLERS];
    for (uintptr_t i = 0; i < CALLERS; i++)
        if (pthread_create(&callers[i], 0, work, (void *)i))
            return 1;
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i], 0);
    return get_threads() != 4;
}

/* A fork while other threads are at work. */
static int fork_beside(void) {
    pthread_t caller;
    if (pthread_create(&caller, 0, work, (void *)77))
        return 1;
    int status = 0, failed = 0;
    for (int i = 0; i < 10; i++) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            nl_after_fork();
            const int threads = get_threads();
            rounds = 5;
            work((void *)5);
            _exit(threads == 4 && get_threads() == 4 ? 0 : 2);
        }
        waitpid(child, &status, 0);
        failed |= status;
    }
    pthread_join(caller, 0);
    return failed;
}

int main(int count, char **arguments) {
    if (count > 1)
        rounds = atoi(arguments[1]);
    for (limiting_too = 0; limiting_too < 2; limiting_too++)
        if (all_callers())
            return 1;
    return count > 2 ? 0 : fork_beside() != 0; /* ThreadSanitizer has no threads in forks */
}
