/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c - an image is told by its bytes: the file `images` beside this library lists pairs "IMAGE LIBRARY", and of
 * the files IMAGE the one that is the same names the library of the same kernels for the CPU. Kernels stay loaded: the
 * sanitizers want to know them to the end.
 */
#include "sim.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FATBIN_MAGIC 0xBA55ED50u

struct sim_module {
    struct sim_handle handle;
    struct sim_context *context;
    void *library;
    struct sim_function *functions;
};

/* An image's size: a fat binary says it in its head, anything else is text (PTX). */
static size_t image_bytes(const void *image)
{
    struct {
        uint32_t magic;
        uint16_t version, head_bytes;
        uint64_t bytes;
    } head;
    memcpy(&head.magic, image, sizeof head.magic);
    if (head.magic != FATBIN_MAGIC) return strlen(image);
    memcpy(&head, image, sizeof head);
    return head.head_bytes + head.bytes;
}

static bool is_file(const char *path, const void *image, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    char *content = malloc(bytes + 1);
    bool same = content != NULL && fread(content, 1, bytes + 1, file) == bytes && memcmp(content, image, bytes) == 0;
    free(content);
    fclose(file);
    return same;
}

/* The library of an image's kernels. */
static bool find_library(const void *image, char *library, size_t room)
{
    Dl_info self;
    char path[PATH_MAX], line[PATH_MAX], name[1024], kernels[256], file[2 * PATH_MAX];
    bool found = false;
    if (dladdr((void *)find_library, &self) == 0 || realpath(self.dli_fname, path) == NULL) return false;
    *strrchr(path, '/') = '\0';
    snprintf(file, sizeof file, "%s/images", path);
    FILE *list = fopen(file, "r");
    if (list == NULL) return false;
    size_t bytes = image_bytes(image);
    while (!found && fgets(line, sizeof line, list) != NULL) {
        if (sscanf(line, "%1023s %255s", name, kernels) != 2) continue;
        snprintf(file, sizeof file, "%s%s%s", name[0] == '/' ? "" : path, name[0] == '/' ? "" : "/", name);
        found = is_file(file, image, bytes);
        if (found && sim_settings.plant[0] != '\0') /* the same with that bug: NAME.so, NAME_BUG.so */
            snprintf(library, room, "%s/%.*s_%s.so", path, (int)(strlen(kernels) - 3), kernels, sim_settings.plant);
        else if (found)
            snprintf(library, room, "%s/%s", path, kernels);
    }
    fclose(list);
    return found;
}

static void *load_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct rd_sim_services **driver = library != NULL ? dlsym(library, "rd_sim_driver") : NULL;
    if (driver == NULL) {
        sim_say("kernels for the CPU: %s", dlerror());
        return NULL;
    }
    *driver = &sim_services;
    return library;
}

rd_cu_result cuModuleLoadData(rd_cu_module *module, const void *image)
{
    SIM_ENTER_CONTEXT(cuModuleLoadData, context);
    char path[2 * PATH_MAX];
    if (image == NULL) return RD_CU_ERROR_INVALID_VALUE;
    if (!find_library(image, path, sizeof path)) {
        sim_say("no kernels for the CPU are known for this image: see images beside libcuda.so.1");
        return RD_CU_ERROR_NO_BINARY_FOR_GPU;
    }
    struct sim_module *made = calloc(1, sizeof *made);
    if (made == NULL) abort();
    made->library = load_library(path);
    if (made->library == NULL) {
        free(made);
        return RD_CU_ERROR_INVALID_IMAGE;
    }
    made->context = context;
    sim_lock();
    sim_context_await(context); /* loading synchronises */
    sim_handle_add(&made->handle, SIM_MODULE);
    sim_unlock();
    *module = (rd_cu_module)made;
    return RD_CU_SUCCESS;
}

static void module_free(struct sim_module *module)
{
    for (struct sim_function *function = module->functions, *next; function != NULL; function = next) {
        next = function->next;
        sim_handle_remove(&function->handle);
        free(function);
    }
    sim_handle_remove(&module->handle);
    free(module);
}

void sim_modules_close(struct sim_context *context)
{
    for (struct sim_handle *at = sim_handle_next(NULL), *next; at != NULL; at = next) {
        next = sim_handle_next(at);
        struct sim_module *module = (struct sim_module *)at;
        if (at->kind != SIM_MODULE || module->context != context) continue;
        module_free(module);
        next = sim_handle_next(NULL); /* its functions have gone, too */
    }
}

rd_cu_result cuModuleUnload(rd_cu_module module)
{
    SIM_ENTER_CONTEXT(cuModuleUnload, context);
    sim_lock();
    struct sim_module *found = sim_handle_find(module, SIM_MODULE);
    if (found != NULL) {
        sim_context_await(context);
        module_free(found);
    }
    sim_unlock();
    return found != NULL ? RD_CU_SUCCESS : RD_CU_ERROR_INVALID_HANDLE;
}

rd_cu_result cuModuleGetFunction(rd_cu_function *function, rd_cu_module module, const char *name)
{
    SIM_ENTER_CONTEXT(cuModuleGetFunction, context);
    char symbol[80];
    rd_cu_result result = RD_CU_ERROR_INVALID_HANDLE;
    snprintf(symbol, sizeof symbol, "%s_sim", name);
    (void)context;
    sim_lock();
    struct sim_module *found = sim_handle_find(module, SIM_MODULE);
    const struct rd_sim_kernel *kernel = found != NULL ? dlsym(found->library, symbol) : NULL;
    if (found != NULL && kernel == NULL) result = RD_CU_ERROR_NOT_FOUND;
    if (kernel != NULL) {
        struct sim_function *made = calloc(1, sizeof *made);
        if (made == NULL) abort();
        made->context = found->context;
        made->kernel = kernel;
        snprintf(made->name, sizeof made->name, "%s", name);
        made->next = found->functions;
        found->functions = made;
        sim_handle_add(&made->handle, SIM_FUNCTION);
        *function = (rd_cu_function)made;
        result = RD_CU_SUCCESS;
    }
    sim_unlock();
    return result;
}
