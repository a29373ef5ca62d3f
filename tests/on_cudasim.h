/* SPDX-License-Identifier: Apache-2.0
 *
 * on_cudasim.h - for tests that need GPUs: runs them over the simulated driver (tests/cudasim).
 */
#ifndef RONDO_TEST_ON_CUDASIM_H
#define RONDO_TEST_ON_CUDASIM_H

#include "cudasim/control.h"

#include <stdbool.h>

/* First in main: starts this program once more where the dynamic linker finds the simulated libcuda.so.1, with these
 * settings (tests/cudasim/settings.c; words of the variable CUDASIM come after them and so count more), and returns
 * there. With CUDASIM=off it returns at once: the test runs on what GPUs there are. */
void on_cudasim(char **argv, const char *settings);

/* The same for several settings (the last is NULL), each in a process of its own. Returns in those, with the settings;
 * the first process ends with status 0 if all of them do. */
const char *on_each_cudasim(char **argv, const char *const settings[]);

/* Whether the driver is the simulated one. */
bool is_cudasim(void);

/* After on_cudasim, in a program that needs more than a driver: where that is not there it says so, and ends with
 * status 0. The library's kernels, which nvcc makes; and the simulated driver, for what `why` says. */
void needs_kernels(void);
void needs_cudasim(const char *why);

#endif
