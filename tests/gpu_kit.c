/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_kit.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

rd_cu_context gpu_enter(int device)
{
    rd_cu_context context;
    CU(cuDevicePrimaryCtxRetain, &context, device);
    CU(cuCtxPushCurrent, context);
    return context;
}

void gpu_leave(int device)
{
    CU(cuCtxPopCurrent, NULL);
    CU(cuDevicePrimaryCtxRelease, device);
}

rd_cu_address gpu_alloc(size_t bytes)
{
    rd_cu_address address;
    CU(cuMemAlloc, &address, bytes);
    return address;
}

rd_cu_stream gpu_stream(unsigned flags)
{
    rd_cu_stream stream;
    CU(cuStreamCreateWithPriority, &stream, flags, 0);
    return stream;
}

void gpu_put(rd_cu_address to, const void *from, size_t bytes)
{
    CU(cuMemcpyAsync, to, (rd_cu_address)(uintptr_t)from, bytes, NULL);
    CU(cuStreamSynchronize, NULL);
}

void gpu_get(void *to, rd_cu_address from, size_t bytes)
{
    CU(cuMemcpyAsync, (rd_cu_address)(uintptr_t)to, from, bytes, NULL);
    CU(cuStreamSynchronize, NULL);
}

rd_cu_function gpu_trial(const char *file, const char *kernel)
{
    char image[64];
    rd_cu_module module;
    rd_cu_function function;
    snprintf(image, sizeof image, "// trial_%s\n", file);
    CU(cuModuleLoadData, &module, image);
    CU(cuModuleGetFunction, &function, module, kernel);
    return function;
}

void gpu_launch(rd_cu_function function, unsigned blocks, unsigned threads, rd_cu_stream stream, void *argument)
{
    void *parameters[] = {argument};
    CU(cuLaunchKernel, function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, NULL);
}

enum { MOST_THREADS = 8 };

struct threads {
    int n, gpus;
    void *(*thread)(void *comm);
};

static void one_process(const rondo_unique_id *id, int rank, int n, void *context)
{
    const struct threads *t = context;
    rondo_comm *comms[MOST_THREADS];
    pthread_t threads[MOST_THREADS];
    int devices[MOST_THREADS];
    (void)id, (void)rank, (void)n;
    for (int i = 0; i < t->n; i++) devices[i] = i % t->gpus;
    OK(rondo_init_all(comms, t->n, devices));
    for (int i = 0; i < t->n; i++) CHECK(!pthread_create(&threads[i], NULL, t->thread, comms[i]), "no thread");
    for (int i = 0; i < t->n; i++) pthread_join(threads[i], NULL);
}

void gpu_threads(int n, int gpus, void *(*thread)(void *comm))
{
    assert_in_range(n, 1, MOST_THREADS);
    ranks_run_bare(1, one_process, &(struct threads){n, gpus, thread});
}

int sweep_walks(const char *settings, const char *plant, int seeds)
{
    int status = 0;
    for (int seed = 0; seed < seeds && !status; seed++) {
        char words[200];
        snprintf(words, sizeof words, "%s seed=%d%s%s", settings, seed, *plant ? " plant=" : "", plant);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            setenv("CUDASIM", words, 1);
            if (!freopen("/dev/null", "w", stdout)) _exit(126);
            execl("/proc/self/exe", "sweep", "walk", (char *)NULL);
            _exit(126);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 126);
    }
    return status;
}

bool built_with(const char *sanitizer)
{
    const char *build = getenv("RONDO_BUILD");
    return build && strstr(build, sanitizer);
}

void plants_are_found(const char *settings, const gpu_plant *plants, size_t count)
{
    assert_int_equal(sweep_walks(settings, "", 2), 0);
    for (size_t i = 0; i < count; i++)
        if ((!plants[i].build || built_with(plants[i].build)) && !sweep_walks(settings, plants[i].plant, 20))
            fail_msg("the bug %s is not found", plants[i].plant);
}

static int own_errors = -1;
static FILE *listened;

void hear_errors(void)
{
    own_errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    listened = tmpfile();
    assert_true(own_errors >= 0 && listened != NULL && dup2(fileno(listened), STDERR_FILENO) >= 0);
}

void heard(char *text, size_t room)
{
    assert_true(dup2(own_errors, STDERR_FILENO) >= 0);
    close(own_errors);
    rewind(listened);
    text[fread(text, 1, room - 1, listened)] = '\0';
    fclose(listened);
}
