/* SPDX-License-Identifier: Apache-2.0 */
#include "on_cudasim.h"

#include "reduce/image.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void on_cudasim(char **argv, const char *settings)
{
    char self[PATH_MAX], path[2 * PATH_MAX], words[1024];
    const char *asked = getenv("CUDASIM"), *before = getenv("LD_LIBRARY_PATH");
    if (getenv("ON_CUDASIM") != NULL || (asked != NULL && strcmp(asked, "off") == 0)) return;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) abort();
    self[length] = '\0';
    *strrchr(self, '/') = '\0';
    snprintf(path, sizeof path, "%s/../cudasim%s%s", self, before != NULL ? ":" : "", before != NULL ? before : "");
    snprintf(words, sizeof words, "%s%s%s", settings, asked != NULL ? " " : "", asked != NULL ? asked : "");
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("CUDASIM", words, 1);
    setenv("ON_CUDASIM", "1", 1);
    /* Kernels' shared memory is thread-local. The leak check takes some of it for larger than it is, and crashes. */
    const char *asan = getenv("ASAN_OPTIONS");
    snprintf(words, sizeof words, "%s%sintercept_tls_get_addr=0", asan != NULL ? asan : "", asan != NULL ? ":" : "");
    setenv("ASAN_OPTIONS", words, 1);
    execv("/proc/self/exe", argv);
    perror("on_cudasim: exec");
    abort();
}

const char *on_each_cudasim(char **argv, const char *const settings[])
{
    const char *chosen = getenv("ON_EACH_CUDASIM");
    int failed = 0, status;
    if (chosen != NULL) {
        on_cudasim(argv, chosen);
        return chosen;
    }
    for (int i = 0; settings[i] != NULL; i++) {
        pid_t child = fork();
        if (child == 0) {
            printf("over %s\n", settings[i]);
            fflush(stdout);
            setenv("ON_EACH_CUDASIM", settings[i], 1);
            execv("/proc/self/exe", argv);
            abort();
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) failed = 1;
    }
    exit(failed);
}

bool is_cudasim(void)
{
    return getenv("ON_CUDASIM") != NULL;
}

void needs_kernels(void)
{
    if (!rd_kernel_image_is_remark()) return;
    printf("built without nvcc: no kernels\n");
    exit(0);
}

void needs_cudasim(const char *why)
{
    if (is_cudasim()) return;
    printf("not on the simulated driver, on which alone %s\n", why);
    exit(0);
}

/* A function of control.h in the driver. */
static void *find(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *function = driver != NULL ? dlsym(driver, name) : NULL;
    if (function == NULL) {
        fprintf(stderr, "on_cudasim: this driver has no %s: %s\n", name, dlerror());
        abort();
    }
    return function;
}

int cudasim_fail(const char *call, unsigned long after, unsigned result, int lost)
{
    int (*function)(const char *, unsigned long, unsigned, int);
    *(void **)&function = find("cudasim_fail");
    return function(call, after, result, lost);
}

void cudasim_seed(unsigned seed)
{
    void (*function)(unsigned);
    *(void **)&function = find("cudasim_seed");
    function(seed);
}

unsigned long cudasim_calls(const char *call)
{
    unsigned long (*function)(const char *);
    *(void **)&function = find("cudasim_calls");
    return function(call);
}

void cudasim_held(struct cudasim_held *held)
{
    void (*function)(struct cudasim_held *);
    *(void **)&function = find("cudasim_held");
    function(held);
}
