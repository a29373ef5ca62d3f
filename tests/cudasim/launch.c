/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c - a launch's blocks. The stream's thread runs them one after the other; a helper joins for each processor,
 * and one more whenever a block waits for something and others have not begun: blocks that are resident together all go
 * on, and those of kernels that wait for nobody need few threads. What a device's multiprocessors cannot hold waits,
 * and who waits for it waits for ever, as on a device.
 */
#include "sanitize.h"
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sim_function *function_find(rd_cu_function function)
{
    sim_lock();
    struct sim_function *found = sim_handle_find(function, SIM_FUNCTION);
    sim_unlock();
    return found;
}

static unsigned most_threads(const struct sim_function *function)
{
    unsigned most = function->kernel->max_threads;
    return most < sim_max_threads() ? most : sim_max_threads();
}

rd_cu_result cuFuncGetAttribute(int *value, unsigned attribute, rd_cu_function function)
{
    SIM_ENTER(cuFuncGetAttribute);
    struct sim_function *found = function_find(function);
    if (found == NULL) return RD_CU_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case RD_CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = (int)most_threads(found); break;
    case RD_CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case RD_CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: *value = 0; break;
    case RD_CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
    case RD_CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case RD_CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = sim_settings.capability; break;
    case RD_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = found->dynamic_shared_bytes; break;
    default: return RD_CU_ERROR_INVALID_VALUE;
    }
    return RD_CU_SUCCESS;
}

enum { SHARED_ALWAYS = 48 << 10, SHARED_MOST = 227 << 10 };

rd_cu_result cuFuncSetAttribute(rd_cu_function function, unsigned attribute, int value)
{
    SIM_ENTER(cuFuncSetAttribute);
    struct sim_function *found = function_find(function);
    if (found == NULL) return RD_CU_ERROR_INVALID_HANDLE;
    if (attribute != RD_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > SHARED_MOST)
        return RD_CU_ERROR_INVALID_VALUE;
    found->dynamic_shared_bytes = value;
    return RD_CU_SUCCESS;
}

rd_cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, rd_cu_function function, int threads,
                                                         size_t shared_bytes)
{
    SIM_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    struct sim_function *found = function_find(function);
    if (found == NULL) return RD_CU_ERROR_INVALID_HANDLE;
    if (threads <= 0 || (unsigned)threads > most_threads(found) || shared_bytes > SHARED_MOST)
        return RD_CU_ERROR_INVALID_VALUE;
    int by_threads = SIM_THREADS_PER_MULTIPROCESSOR / threads;
    *blocks = by_threads < SIM_BLOCKS_PER_MULTIPROCESSOR ? by_threads : SIM_BLOCKS_PER_MULTIPROCESSOR;
    return RD_CU_SUCCESS;
}

/* ---- Launching ----------------------------------------------------------------------------------------------------
 */

static unsigned product(struct rd_sim_dim size)
{
    uint64_t all = (uint64_t)size.x * size.y * size.z;
    return all > UINT32_MAX || size.y > 65535 || size.z > 65535 ? 0 : (unsigned)all;
}

rd_cu_result cuLaunchKernel(rd_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                            rd_cu_stream stream, void **parameters, void **extra)
{
    SIM_ENTER_WORK(cuLaunchKernel, in, stream);
    struct rd_sim_dim grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
    struct sim_function *found = function_find(function);
    if (found == NULL || found->context != in->context) return RD_CU_ERROR_INVALID_HANDLE;
    if (product(grid) == 0 || product(block) == 0 || product(block) > most_threads(found))
        return RD_CU_ERROR_INVALID_VALUE;
    if (parameters == NULL || parameters[0] == NULL || extra != NULL) return RD_CU_ERROR_INVALID_VALUE;
    if (shared_bytes > SHARED_ALWAYS && (int)shared_bytes > found->dynamic_shared_bytes)
        return RD_CU_ERROR_INVALID_VALUE;
    struct sim_launch *launch = calloc(1, sizeof *launch);
    if (launch == NULL) abort();
    launch->function = found;
    launch->grid = grid;
    launch->block = block;
    launch->blocks = product(grid);
    launch->threads = product(block);
    launch->shared_bytes = shared_bytes;
    launch->seed = sim_settings.seed;
    memcpy(launch->argument, parameters[0], found->kernel->argument_bytes);
    return sim_launch_put(in, launch);
}

/* ---- Running ------------------------------------------------------------------------------------------------------
 */

/* Runs blocks until all have begun. The lock is held. */
static void run_blocks(struct sim_launch *launch)
{
    int device = launch->function->context->device;
    while (launch->next < launch->blocks) {
        if (!sim_device_enter(device, launch->threads)) {
            sim_await();
            continue;
        }
        unsigned index = launch->next++;
        sim_unlock();
        SIM_ACQUIRE(launch);
        rd_cu_result result = sim_block_run(launch, index);
        SIM_RELEASE(&launch->next);
        sim_lock();
        if (result != RD_CU_SUCCESS && launch->result == RD_CU_SUCCESS) launch->result = result;
        sim_device_leave(device, launch->threads);
    }
}

static void help(void *argument)
{
    struct sim_launch *launch = argument;
    run_blocks(launch);
    launch->helpers--;
    sim_moved();
}

/* One more thread for this launch. The lock is held. */
static void call_helper(struct sim_launch *launch)
{
    launch->helpers++;
    sim_thread_run(help, launch);
}

void sim_launch_stuck(struct sim_launch *launch)
{
    sim_lock();
    if (launch->next < launch->blocks) call_helper(launch);
    sim_unlock();
}

/* Pointers that the device cannot follow, found in the argument before they crash this process or, worse, work. */
static rd_cu_result check_argument(struct sim_launch *launch)
{
    const char *fault = NULL;
    rd_cu_address address = 0;
    sim_lock();
    for (size_t i = 0; i + sizeof address <= launch->function->kernel->argument_bytes && fault == NULL;
         i += sizeof address) {
        memcpy(&address, launch->argument + i, sizeof address);
        fault = address == 0 ? NULL : sim_memory_fault(launch->function->context, address);
    }
    sim_unlock();
    if (fault == NULL) return RD_CU_SUCCESS;
    sim_say("kernel %s is given 0x%llx: %s", launch->function->name, address, fault);
    return RD_CU_ERROR_ILLEGAL_ADDRESS;
}

rd_cu_result sim_launch_run(struct sim_launch *launch)
{
    rd_cu_result result = sim_kernel_fault();
    if (result == RD_CU_SUCCESS) result = check_argument(launch);
    if (result != RD_CU_SUCCESS) return result;
    SIM_RELEASE(launch);
    sim_lock();
    unsigned processors = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    for (unsigned i = 1; i < processors && i < launch->blocks; i++) call_helper(launch);
    run_blocks(launch);
    while (launch->helpers > 0) sim_await();
    sim_unlock();
    SIM_ACQUIRE(&launch->next);
    return launch->result;
}
